"""Work in threads that ends late, or that fails once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from textual.pilot import Pilot

from .patience import PATIENCE
from .reviewing import settled, until


class Late:
    """One call of a function whose result is kept back until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def first(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, whose next result is late."""

        @wraps(call)
        def late(*arguments: Any, **named: Any) -> Any:
            found = call(*arguments, **named)
            if not self.begun.is_set():
                self.begun.set()
                assert self.go_on.wait(PATIENCE)
            return found

        return late

    async def awaited(self, pilot: Pilot[None]) -> None:
        await until(pilot, self.begun.is_set)

    async def ends(self, pilot: Pilot[None]) -> None:
        self.go_on.set()
        await settled(pilot)


def failing_once(call: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    left = [error]

    @wraps(call)
    def tried(*arguments: Any, **named: Any) -> Any:
        if left:
            raise left.pop()
        return call(*arguments, **named)

    return tried
