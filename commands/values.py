"""Known values of options that take any text, for completion in a shell and in `review`; looked up when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import typer

Values = Callable[[], Iterable[str]] | tuple[str, ...]
Complete = Callable[[str], list[str]]
"""What Typer calls with the text typed so far."""


def any_of(values: Values) -> Complete:
    """Completes one of the values."""
    return lambda incomplete: [
        value for value in (values() if callable(values) else values) if value.startswith(incomplete)
    ]


def several_of(values: Values) -> Complete:
    """Completes the last of values with commas between them, by those that are not there yet."""

    def complete(incomplete: str) -> list[str]:
        given, comma, start = incomplete.rpartition(",")
        return [given + comma + value for value in any_of(values)(start) if value not in given.split(",")]

    complete.__annotations__ = {}  # a lambda has none either: Typer evaluates them for each option, at each start
    return complete


def option(
    *names: str, panel: str | None = None, of: Values | None = None, some_of: Values | None = None, **more: Any
) -> Any:
    """An option in a ``panel`` of the help, completed by one of these values, or by some with commas between them."""
    complete = any_of(of) if of else several_of(some_of) if some_of else None
    return typer.Option(*names, rich_help_panel=panel, autocompletion=complete, **more)


def methods() -> Iterable[str]:
    from ..engine.select.methods import METHODS

    return METHODS


def compared() -> Iterable[str]:
    from ..engine.evaluate.request_stages import LLM_METHODS

    return (*methods(), *LLM_METHODS)


def llms() -> Iterable[str]:
    from ..engine.llm.spec import BACKENDS

    return (f"{name}:" if kind.named else name for name, kind in BACKENDS.items())


def formats() -> Iterable[str]:
    from ..engine.export.corpus import CALIBRATION, FORMATS

    return (*FORMATS, CALIBRATION)


def kinds() -> Iterable[str]:
    from ..engine.checks.results import KINDS

    return KINDS


def orders() -> Iterable[str]:
    from ..engine.pool.prompts import ORDERS

    return ORDERS


def templates() -> Iterable[str]:
    from ..engine.prompting.template import names

    return names()


def prompt_formats() -> Iterable[str]:
    from ..engine.prompting.template import FORMATS

    return ("auto", *FORMATS)


def answers() -> Iterable[str]:
    from ..engine.store.settings import ANSWERS

    return ANSWERS


def endpoints() -> Iterable[str]:
    from ..engine.store.settings import ENDPOINTS

    return ENDPOINTS


def metrics() -> Iterable[str]:
    from ..engine.grading.metrics import JUDGES, METRICS

    return ("auto", *METRICS, *JUDGES)


def readers() -> Iterable[str]:
    from ..engine.grading.readers import READERS

    return ("auto", *READERS, "json", "json:", "regex:")


def columns() -> Iterable[str]:
    from ..engine.index.rows import FIELDS

    return (f"{name}=" for name in FIELDS)


def arms() -> Iterable[str]:
    from ..engine.papers.calibrate.rounds import ARMS

    return (*ARMS, "all")


def estimators() -> Iterable[str]:
    from ..engine.papers.calibrate.scores import AUTO, ESTIMATORS

    return (AUTO, *ESTIMATORS)


SPLITS = ("pool", "validation", "test")
QUERIES = ("validation", "test")
RANKINGS = ("dense", "bm25")
DEVICES = ("auto", "cpu", "cuda", "mps")
