"""Loops compiled by numba where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .packages import installed


def compiled(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` as machine code that releases the interpreter's lock; without numba as it is, with the same result to the
    bit, but some hundred times slower: enough for the pools of one task."""
    if not installed("numba"):
        return run
    from numba import njit

    fast: Callable[..., Any] = njit(nogil=True, cache=True)(run)
    return fast
