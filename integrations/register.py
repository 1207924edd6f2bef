"""Objects of other libraries that can be a prompt or a program, by the library that their class is of."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..engine.base.registry import Registry
    from ..engine.prompting.function import Adapter


def adapters(registry: Registry[Adapter]) -> None:
    from ..engine.prompting.function import Adapter

    for library, module in (("dspy", "dspy"), ("langchain_core", "langchain")):
        registry.add(
            library, Adapter(partial(_adapted, module, "as_template"), partial(_adapted, module, "as_program"))
        )


def _adapted(module: str, name: str, own: Any) -> Any:
    """What the function of this ``name`` makes of an object; the library is loaded here."""
    return getattr(import_module(f".{module}", __package__), name)(own)
