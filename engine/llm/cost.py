"""Cost: the plan, the object of ``--dry-run --json``, and the usage that every report of paid work contains."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import astuple, dataclass, field

from ..base.contract import OPTIONAL, SPREAD, Reported
from .marks import GradedBy
from .types import Answer, Result

PROBE_CALLS = 7
"""Calls that it takes to probe a server, about: four to seven, more where replies are broken."""

PROGRAM = "the program"
"""How a destination begins that is a program of the user's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `ask` would do with a list of requests.

    ``distinct`` of the ``requests`` differ; ``cached`` of these are answered, ``to_ask`` are left. The token counts and
    the ``cost`` in US dollars are ranges (low, high) for those left; the cost is None if the price is not known. A
    local model counts its prompt tokens exactly and costs nothing. Each LLM ``to_probe`` gets about `PROBE_CALLS`
    tiny calls more, before the first prompt.
    """

    requests: int
    distinct: int
    cached: int
    to_ask: int
    tokens_in: tuple[int, int]
    tokens_out: tuple[int, int]
    cost: tuple[float, float] | None
    to_probe: tuple[str, ...] = field(default=(), metadata=OPTIONAL)


def unwritten(
    prompts: int, tokens_in: tuple[int, int], tokens_out: tuple[int, int], cost: tuple[float, float] | None
) -> Plan:
    """The plan of prompts that depend on answers and so cannot be written yet; all are different and to be asked."""
    return Plan(
        requests=prompts, distinct=prompts, cached=0, to_ask=prompts, tokens_in=tokens_in, tokens_out=tokens_out,
        cost=cost,
    )  # fmt: skip


def together(first: Plan, other: Plan) -> Plan:
    """The plan of two pieces of work, of one LLM or of two; its cost is not known if that of one piece is not."""
    return Plan(
        requests=first.requests + other.requests,
        distinct=first.distinct + other.distinct,
        cached=first.cached + other.cached,
        to_ask=first.to_ask + other.to_ask,
        tokens_in=(first.tokens_in[0] + other.tokens_in[0], first.tokens_in[1] + other.tokens_in[1]),
        tokens_out=(first.tokens_out[0] + other.tokens_out[0], first.tokens_out[1] + other.tokens_out[1]),
        cost=(first.cost[0] + other.cost[0], first.cost[1] + other.cost[1]) if first.cost and other.cost else None,
        to_probe=tuple(dict.fromkeys((*first.to_probe, *other.to_probe))),
    )


@dataclass(frozen=True, slots=True)
class DryRun(Reported):
    """What a piece of work would ask; ``destination`` is where its prompts would go, empty if they stay on this
    machine; ``graded_by``: by what it would grade the answers; ``stand_in``: what would be asked is no LLM."""

    kind = "dry-run"
    plan: Plan = field(metadata=SPREAD)
    destination: str
    graded_by: GradedBy | None = field(default=None, metadata=OPTIONAL)
    stand_in: bool | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals over results; the names are those of the ``--json`` contracts. Of the ``calls`` some came from the cache
    and some are failures; the tokens are those of all answers, cached ones too. ``cut_off`` are generated answers that
    reached the token limit, ``unusable`` those without an answer (`reading.read`), cut off or not."""

    calls: int = 0
    cached_calls: int = 0
    failures: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cut_off: int = 0
    unusable: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class TrainingRun(Reported):
    """A finished run of ``train``; each kind adds its ``metrics``."""

    run: int
    llm: str
    usage: Usage = field(metadata=SPREAD)


def usage_of(results: Collection[Result]) -> Usage:
    """The totals over these results."""
    answers = [result for result in results if isinstance(result, Answer)]
    return Usage(
        calls=len(results),
        cached_calls=sum(answer.cached for answer in answers),
        failures=len(results) - len(answers),
        tokens_in=sum(answer.tokens_in for answer in answers),
        tokens_out=sum(answer.tokens_out for answer in answers),
        cut_off=sum(answer.finish == "length" for answer in answers),
        unusable=sum(not answer.usable for answer in answers),
    )


@dataclass(frozen=True, slots=True)
class Judging:
    """What a judge was asked: its LLM, its ``prompt``, its usage, and the answers it gave no verdict on."""

    llm: str
    prompt: str
    usage: Usage = field(metadata=SPREAD)
    unjudged: int
