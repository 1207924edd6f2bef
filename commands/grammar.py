"""The commands as the completion of `review` needs them, read from Typer's own declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from ..tui.completion import CommandSpec, OptionSpec


def _methods() -> Sequence[str]:
    from ..engine.evaluate.request_stages import LLM_METHODS
    from ..engine.select.methods import METHODS

    return (*METHODS, *LLM_METHODS)


def _select_methods() -> Sequence[str]:
    from ..engine.select.methods import METHODS

    return tuple(METHODS)


def _llms() -> Sequence[str]:
    from ..engine.llm.spec import BACKENDS

    return tuple(f"{name}:" if kind.named else name for name, kind in BACKENDS.items())


def _splits() -> Sequence[str]:
    from ..engine.pool.records import SPLITS

    return SPLITS


def _formats() -> Sequence[str]:
    from ..engine.export.corpus import FORMATS

    return (*FORMATS, "calibration")


def _kinds() -> Sequence[str]:
    from ..engine.checks.results import KINDS

    return KINDS


def _orders() -> Sequence[str]:
    from ..engine.pool.prompts import ORDERS

    return ORDERS


def _prompt_formats() -> Sequence[str]:
    from ..engine.pool.prompts import FORMATS

    return ("auto", *FORMATS)


def _answers() -> Sequence[str]:
    from ..engine.store.settings import ANSWERS

    return ANSWERS


def _metrics() -> Sequence[str]:
    from ..engine.llm.judge import NAME
    from ..engine.pool.answers import SCORES

    return ("accuracy", *SCORES, NAME)


def _fields() -> Sequence[str]:
    from ..engine.index.rows import FIELDS

    return tuple(f"{name}=" for name in FIELDS)


VALUES: Mapping[str, Callable[[], Sequence[str]]] = {
    "llm": _llms,
    "labelling_llm": _llms,
    "method": _select_methods,
    "methods": _methods,
    "split": _splits,
    "format": _formats,
    "kind": _kinds,
    "accept": _kinds,
    "columns": _fields,
    "order": _orders,
    "answers": _answers,
    "prompt_format": _prompt_formats,
    "device": lambda: ("auto", "cpu", "cuda", "mps"),
    "metric": _metrics,
    "ranking": lambda: ("dense", "bm25"),
}
"""Known values of options that take any text, by the name of the parameter."""

SEVERAL = ("methods", "kind", "accept", "arms")
"""Options whose value is a list with commas."""

FILES = ("paths", "out", "log", "file")
"""Arguments that are files."""


def grammar(command: Any) -> CommandSpec:
    """A command of Typer with all below it."""
    children = getattr(command, "commands", {})
    return CommandSpec(
        _first_line(command.help),
        [_option(p) for p in command.params if p.opts and p.opts[0].startswith("-") and not p.hidden],
        {name: grammar(child) for name, child in children.items() if not child.hidden},
        any(p.name in FILES for p in command.params if not p.opts[0].startswith("-")),
    )


def _option(parameter: Any) -> OptionSpec:
    choices = _choices(parameter)
    values = (lambda: choices) if choices else VALUES.get(parameter.name)
    return OptionSpec(
        (*parameter.opts, *parameter.secondary_opts),
        _first_line(parameter.help),
        not parameter.is_flag and not parameter.count,
        values,
        parameter.name in SEVERAL,
        bool(parameter.multiple),
    )


def _choices(parameter: Any) -> tuple[str, ...]:
    """The values of a parameter that is a choice: Typer keeps its annotation."""
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if get_origin(annotation) is Literal:
        return tuple(map(str, get_args(annotation)))
    return tuple(map(str, getattr(getattr(parameter, "type", None), "choices", None) or ()))


def _first_line(text: str | None) -> str:
    return " ".join((text or "").split())
