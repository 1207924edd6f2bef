"""Usage: the totals that every report of paid work contains."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import astuple, dataclass, field
from typing import Any, Self

from ..base import contract
from .types import Answer, Result


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
class TrainingRun:
    """A finished run of ``train``; each kind adds its ``metrics``."""

    run: int
    llm: str
    usage: Usage = field(metadata=contract.SPREAD)

    def as_json(self) -> dict[str, Any]:
        """The ``train --json`` contract."""
        return contract.to_json(self)

    @classmethod
    def from_json(cls, data: object) -> Self:
        """From the output of `as_json`. Raises `ValueError` for anything else."""
        return contract.from_json(cls, data)


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
