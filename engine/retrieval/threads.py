"""Small matrix products on one thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_lock = threading.RLock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run numpy's matrix products on one thread for the length of the block.

    As soon as another process is busy, threads that share a product of a few milliseconds wait for each other far
    longer than they compute (8 ms instead of under 1 ms for one, 420 ms instead of 15 ms for the layers of an encoder).
    The limit applies to the whole process, so blocks take turns: two that set and restore it independently could leave
    it in place permanently.
    """
    with _lock, _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
