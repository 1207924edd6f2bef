"""How an unfinished run of `curate` goes on: the options that were typed, those with which it was begun, why it does
not, and the steps that are left. No LLM is needed here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from ..base.errors import UsageError
from ..grading import SETTINGS
from ..pool.prompts import ORDERS
from ..select.methods import METHODS
from ..store.settings import Settings, is_the_users
from .state import Progress


def limit_of(budget: str) -> list[str]:
    """The option of a budget as it is typed. Raises `UsageError` for anything else."""
    text = budget.strip().replace(",", "")
    if re.fullmatch(r"[1-9]\d{0,8}", text):
        return ["--max-calls", text]
    if re.fullmatch(r"\$\d{1,6}(\.\d{1,4})?", text) and float(text[1:]) > 0:
        return ["--max-cost", text[1:]]
    raise UsageError(f"'{budget.strip()}' is no budget", "a number of calls such as 1000, or an amount such as $2.50")


def grading_of(grading: str) -> list[str]:
    """The options that say which answers are right, and no others. Raises `UsageError` for anything else."""
    try:
        words = shlex.split(grading)
    except ValueError as error:
        raise UsageError(f"'{grading}' cannot be read: {error}", "close the quotation mark") from error
    names = [f"--{name.replace('_', '-')}" for name in SETTINGS]
    if len(words) % 2 or not all(word in names for word in words[::2]):
        raise UsageError(f"'{grading.strip()}' does not say which answers are right", "--metric json-f1 --least 0.8")
    return words


def graded_by(state: Progress | None) -> list[str]:
    """The options by which the answers of a run are graded; none if one names what only the user may, as the state may
    be a stranger's."""
    words = state.graded_by.options if state and state.graded_by else []
    named = zip(words[::2], words[1::2], strict=True)
    return [] if any(is_the_users(name[2:], value) for name, value in named) else words


def budget_of(state: Progress | None) -> str:
    """The budget of a run as it is typed; empty if it has none."""
    key: Mapping[str, object] = state.key if state else {}
    most, cost = key.get("max_calls"), key.get("max_cost")
    if isinstance(most, int) and not isinstance(most, bool):
        return str(most)
    return f"${cost:.10g}" if isinstance(cost, int | float) and not isinstance(cost, bool) else ""


def differs(state: Progress, settings: Settings, budget: str, grading: str) -> str:
    """Why an unfinished run is not gone on with; empty if it is."""
    if state.key.get("llm") != settings.llm:
        return f"an unfinished run with {state.key.get('llm')} is left: the LLM is {settings.llm} now"
    if state.key.get("seed") != settings.seed:
        return "an unfinished run with another seed is left"
    if shlex.join(graded_by(state)) != grading:
        return "another grading begins anew"
    if budget_of(state) != budget:
        return f"another budget begins anew; {budget_of(state)} goes on with the unfinished run"
    return ""


def as_begun(state: Progress, settings: Settings) -> list[str]:
    """The options with which the unfinished run was begun, where the settings differ."""
    key = state.key
    method, shots, order, noise = (key.get(name) for name in ("method", "k", "order", "noise"))
    words = []
    if method != settings.method and method in METHODS:
        words += ["--method", str(method)]
    if shots != settings.k and isinstance(shots, int):
        words += ["--shots", str(shots)]
    if order != settings.order and order in ORDERS:
        words += ["--order", str(order)]
    if isinstance(noise, float):
        words += ["--noise", f"{noise:g}"]
    if key.get("relabel") is False:
        words.append("--no-relabel")
    return words
