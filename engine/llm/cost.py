"""Cost estimates: the plan, and the object of ``--dry-run --json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..base import contract
from ..base.contract import OPTIONAL, SPREAD

PROBE_CALLS = 7
"""Calls that it takes to probe a server, about: four to seven, more where replies are broken."""


@dataclass(frozen=True, slots=True)
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


def together(one: Plan, other: Plan) -> Plan:
    """The plan of two pieces of work, of one LLM or of two; its cost is not known if that of one piece is not."""
    return Plan(
        one.requests + other.requests,
        one.distinct + other.distinct,
        one.cached + other.cached,
        one.to_ask + other.to_ask,
        (one.tokens_in[0] + other.tokens_in[0], one.tokens_in[1] + other.tokens_in[1]),
        (one.tokens_out[0] + other.tokens_out[0], one.tokens_out[1] + other.tokens_out[1]),
        (one.cost[0] + other.cost[0], one.cost[1] + other.cost[1]) if one.cost and other.cost else None,
        tuple(dict.fromkeys((*one.to_probe, *other.to_probe))),
    )


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a piece of work would ask; ``destination`` is where its prompts would go, empty if they stay on this
    machine."""

    plan: Plan = field(metadata=SPREAD)
    destination: str

    def as_json(self) -> dict[str, Any]:
        """The contract of ``--dry-run --json``, for one of several pieces."""
        return contract.to_json(self)

    @classmethod
    def from_json(cls, data: object) -> DryRun:
        """From the output of `as_json`. Raises `ValueError` for anything else."""
        return contract.from_json(cls, data)
