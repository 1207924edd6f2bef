"""Objects of other libraries that can be a prompt or a program, by the library that their class is of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..engine.base.registry import Registry
    from ..engine.prompting.function import Adapter


def adapters(registry: Registry[Adapter]) -> None:
    from ..engine.prompting.function import Adapter

    registry.add("dspy", Adapter(_dspy_template, _dspy_program))
    registry.add("langchain_core", Adapter(_langchain_template, _langchain_program))


def _dspy_template(own: Any) -> Callable[..., Any]:
    from .dspy import as_template

    return as_template(own)


def _dspy_program(own: Any) -> Callable[..., Any]:
    from .dspy import as_program

    return as_program(own)


def _langchain_template(own: Any) -> Callable[..., Any]:
    from .langchain import as_template

    return as_template(own)


def _langchain_program(own: Any) -> Callable[..., Any]:
    from .langchain import as_program

    return as_program(own)
