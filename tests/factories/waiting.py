"""Waiting until a screen has nothing left to do.

Textual's own `Pilot` waits until the processor is idle: 40 ms for each key, and a second while any thread computes.
Here each part of the screen is asked what it has left to do, which takes a millisecond and is no guess.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import textual.app
import textual.pilot
from icl_curate.tui.dialogs.dialog import Confirm
from textual._context import active_app
from textual.app import App
from textual.dom import DOMNode
from textual.message_pump import MessagePump
from textual.pilot import Pilot

from .drawing import draw_changes
from .patience import PATIENCE

BRIEF = 0.3
"""Seconds: a timer of up to this length is a pause before work begins, such as that after a typed letter."""

AT_ONCE = 0.02
"""Seconds: a timer of up to this length is Textual's way to say afterwards."""

LONGEST = 0.02
"""Seconds between two looks at what takes long, such as a thread's work: looking takes time from that."""

RECURRING = 5.0


def use_own_waits(patch: Callable[[object, str, object], None]) -> None:
    """Have `Pilot` wait with `handled`, after a key and in `pause`; ``patch`` replaces an attribute."""

    async def wait_for_idle(*_: float) -> None:
        await handled(active_app.get())

    async def wait_for_screen(pilot: Pilot[Any]) -> bool:
        await handled(pilot.app)
        return True

    patch(textual.app, "wait_for_idle", wait_for_idle)
    patch(textual.pilot, "wait_for_idle", wait_for_idle)
    patch(Pilot, "_wait_for_screen", wait_for_screen)


async def handled(app: App[Any]) -> None:
    """All messages have been handled, and what follows from them is laid out and drawn. Threads may still be at work,
    and timers may be under way. On a machine so busy that what recurs leaves no gap, this ends all the same."""
    await _until_nothing(app, lambda pumps: _pauses(pumps, AT_ONCE), RECURRING)


async def settled(pilot: Pilot[Any]) -> None:
    """The same, and no thread works nor is any pause under way before one will; fails after `PATIENCE`."""
    app = pilot.app

    def works(pumps: Sequence[MessagePump]) -> bool:
        return _pauses(pumps, BRIEF) or any(
            not worker.is_finished and not (worker.group == "decide" and isinstance(app.screen, Confirm))
            for worker in app.workers  # a decision waits for its answer
        )

    if not await _until_nothing(app, works, PATIENCE):
        raise AssertionError(f"busy for {PATIENCE:g} s: {[*filter(_is_busy, _pumps(app))]}, {[*app.workers]}")
    draw_changes(app)


async def _until_nothing(app: App[Any], more: Callable[[Sequence[MessagePump]], bool], seconds: float) -> bool:
    """Wait until nothing is left to do, seen twice, nor is there ``more``; False where that took too long."""
    for _ in range(3):
        await asyncio.sleep(0)  # a key reaches the app by way of another task
    deadline = time.monotonic() + seconds
    seen, pause = 0, 0.001
    while seen < 2 and not app._exit and not app._exception_event.is_set():
        if time.monotonic() > deadline:
            return False
        busy = _first_busy(app)
        if busy is not None:
            seen = 0
            await _until_idle(busy)
        elif _awaits_drawing(app):
            seen = 0
            app.screen._on_timer_update()
            await asyncio.sleep(0)
        elif more(_pumps(app)):
            seen = 0
            await asyncio.sleep(pause)
            pause = min(1.3 * pause, LONGEST)
        else:
            seen += 1
            await asyncio.sleep(0)
    return True


async def _until_idle(pump: MessagePump) -> None:
    """Wait for one part, but not long: it may have left the screen."""
    for _ in range(10):
        await asyncio.sleep(0.001)
        if not _is_busy(pump):
            return


def _pumps(app: App[Any]) -> list[MessagePump]:
    found: list[MessagePump] = [app]
    parts: list[DOMNode] = [*app.screen_stack]
    while parts:
        part = parts.pop()
        found.append(part)
        parts += part._nodes._nodes
    return found


def _first_busy(app: App[Any]) -> MessagePump | None:
    """The first of `_pumps` that is busy: asked after every key, so it stops there."""
    if _is_busy(app):
        return app
    parts: list[DOMNode] = [*app.screen_stack]
    while parts:
        part = parts.pop()
        if _is_busy(part):
            return part
        parts += part._nodes._nodes
    return None


def _is_busy(pump: MessagePump) -> bool:
    """Does it anything but wait for the next message?"""
    queue = pump._message_queue
    if queue.values or pump._next_callbacks:
        return True
    for waiter in queue.ready_event._waiters:  # noqa: SIM110 - a tenth of the time of `all`
        if not waiter.done():
            return False
    return True


def _awaits_drawing(app: App[Any]) -> bool:
    if not app.screen_stack:
        return False
    screen = app.screen_stack[-1]
    if screen._callbacks:
        return True
    shown = screen.is_current and not app._batch_count
    return shown and bool(
        screen._layout_required
        or screen._scroll_required
        or screen._repaint_required
        or screen._recompose_required
        or screen._dirty_widgets
    )


def _pauses(pumps: Sequence[MessagePump], longest: float) -> bool:
    """Is a timer under way that fires once?"""
    return any(
        timer._repeat == 0 and timer._interval <= longest and timer._task is not None and not timer._task.done()
        for pump in pumps
        if pump._timers.data
        for timer in list(pump._timers)
    )
