"""Counts in sentences."""

from __future__ import annotations


def counted(count: int, what: str, one: str = "", many: str = "") -> str:
    """A count and what it counts, ``what`` in the singular, and the verb that follows, for ``one`` and for ``many``:
    ``1 row``, ``1,200 rows``, ``2 queries are``."""
    if count == 1:
        return f"1 {what} {one}".rstrip()
    several = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{count:,} {several} {many}".rstrip()


def open_of(left: int, count: int) -> str:
    """How many of a ``count`` are ``left`` to be decided on, before that count: ``0 open of 5``; empty if all are."""
    return "" if left == count else f"{left:,} open of "
