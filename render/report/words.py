"""Figures, names and texts as all parts of the report write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ...engine.llm.marks import figure
from ..tables import change
from .document import Code, Line, Said

if TYPE_CHECKING:
    from ...engine.report.results import Compared, Confirmed, Evaluated, Excerpt, Interval, PoolReport

MOST = 40
"""Maximum rows of a table of sources, labels, runs or decisions; ``--json`` has all."""

NAME = 60
"""Characters of a name within a line of others."""

DRAWN = 20
"""Maximum bars of a picture."""

NEXT = Code("icl-curate evaluate")


def not_measured(found: PoolReport) -> Iterator[Line]:
    """What was not measured, so that nobody reads it into the figures."""
    now = [one for one in found.evaluated if one.as_now and one.split == "test"]
    before = [one for one in found.evaluated if one.as_read and one.split == "test"]
    if not found.counts.test:
        yield "There are no test queries: every figure is of queries that decisions were made on."
    elif not now:
        yield ("The pool as it is now was never measured on test queries, which are kept apart from decisions: ", NEXT)
    elif not before:
        yield "The pool as it was read was never measured on test queries: they have no figure from before."


def measured_with(one: Confirmed | Evaluated | Compared) -> str:
    return f"{one.llm[:NAME]}, {method_of(one)}"


def method_of(one: Confirmed | Evaluated | Compared) -> str:
    return one.method if one.method == "zero" else f"{one.method}, k = {one.k}"


def value_of(interval: Interval) -> str:
    return figure(interval.value, (interval.low, interval.high))


def gain_of(interval: Interval) -> str:
    return change(interval.value, interval.low, interval.high)


def left_out(there: int, most: int) -> Iterable[str]:
    return [f"{there - most:,} more are in --json."] if there > most else []


def excerpt(text: Excerpt) -> Said:
    return Said(text.text, text.length)


def name_of(text: str) -> Said:
    """An id, a source, a label: long ones are cut sooner than texts."""
    return Said(text[: 2 * NAME], len(text))
