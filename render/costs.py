"""Output of cost estimates and of the capabilities of an LLM."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..engine.base.code import program_in
from ..engine.base.errors import counted
from ..engine.llm.cost import PROBE_CALLS, PROGRAM, Usage
from .tables import show_table

if TYPE_CHECKING:
    from ..engine.llm.cost import DryRun, Plan
    from ..engine.llm.probing import LLMCheck


def answered(usage: Usage, llm: str) -> str:
    """How many answers of an LLM a run used, how many of them it knew, and how many prompts have none."""
    line = f"{counted(usage.calls - usage.failures, 'answer')} of {llm}, {usage.cached_calls:,} from the cache"
    return line + (f", {counted(usage.failures, 'prompt')} without an answer" if usage.failures else "")


def total(usages: Iterable[Usage]) -> Usage:
    """All of them together."""
    return sum(usages, Usage())


def plan_rows(dry_run: DryRun) -> list[tuple[str, str]]:
    """What a run would ask and cost, as labels and values, and where prompts would go if they leave this machine."""
    plan = dry_run.plan
    program = dry_run.destination.startswith(PROGRAM)
    price = _unknown(program) if program or plan.to_ask or plan.to_probe else "nothing"
    if plan.cost is not None:
        price = f"${plan.cost[0]:.4f} to ${plan.cost[1]:.4f}" if plan.cost[1] else "nothing"
    price += ": the offline reader is not an LLM" if dry_run.stand_in else ""
    return [
        ("prompts", f"{plan.requests:,}, {plan.distinct:,} of them different"),
        ("cached", f"{plan.cached:,}"),
        ("to ask", f"{plan.to_ask + len(plan.to_probe) * PROBE_CALLS:,}{_to_probe(plan)}"),
        ("tokens in", _span(*plan.tokens_in)),
        ("tokens out", _span(*plan.tokens_out)),
        ("cost", price),
        *([("prompts go to", dry_run.destination)] if dry_run.destination else []),
        *([("metric", dry_run.graded_by.line)] if dry_run.graded_by and dry_run.graded_by.line else []),
    ]


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _unknown(program: bool) -> str:
    """What there is instead of a price."""
    return "known when its runs are done" if program else "unknown: give --price-in and --price-out"


def whole_rows(dry_run: DryRun) -> list[tuple[str, str]]:
    """The same for a run whose calls are limited, and whose prompts are not known yet: the limit, and what so many
    calls take."""
    (_, _, _, *rest), plan = plan_rows(dry_run), dry_run.plan
    return [("calls", f"at most {plan.to_ask:,}{_to_probe(plan)}"), *rest]


def _to_probe(plan: Plan) -> str:
    return f", of them about {PROBE_CALLS} to probe {' and '.join(plan.to_probe)}" if plan.to_probe else ""


ANSWERED = {
    "scored": "options are compared by their likelihood; accuracies cannot be compared with an LLM that generates",
    "generated": "options are generated and read; accuracies cannot be compared with an LLM that scores them",
    "": "",
}
"""The likeliest option is an answer even where the LLM would not give it."""


def show_check(checked: LLMCheck) -> None:
    """The probed capabilities of an LLM."""
    able = checked.capabilities
    rows: list[list[Any]] = [["LLM", checked.llm], ["reachable", checked.reachable]]
    if checked.latency is not None:
        rows.append(["latency", f"{checked.latency * 1000:,.0f} ms"])
    if able is not None:
        rows += [
            ["log-probabilities", able.logprobs],
            ["scores options", able.scoring],
            ["follows instructions", able.instructs],
            ["context", "not known" if able.context_tokens is None else counted(able.context_tokens, "token")],
            *(["note", note] for note in able.notes),
            ["answers", ANSWERED[checked.answers]],
        ]
    rows += [["sample", f"{sample.question} → {sample.answer.strip() or '(nothing)'}"] for sample in checked.samples]
    if bad := [sample for sample in checked.samples if not sample.usable]:
        rows.append(
            ["warning", f"{len(bad)} of {len(checked.samples)} samples answer nothing: prompts are not followed"]
        )
    rows.append(["price", "known" if checked.price_known else _unknown(program_in(checked.llm) != "")])
    show_table(["", ">"], rows)
