"""Driving the TUI in tests: wait for a state instead of a time, and read what stands on the screen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from textual.message import Message
from textual.notifications import Notify
from textual.pilot import Pilot

HOSTILE = "label [/foo] [bold]\x1b[31mred\x1b]0;title\x07 \x9b2J \u202eturned\u2066 日本語 e\u0301"


def driven(
    workspace: Workspace,
    session: Callable[[ReviewApp, Pilot[None], list[str]], Awaitable[Any]],
    size: tuple[int, int] = (120, 40),
) -> None:
    """Run a session of keys; its third argument is the notifications so far."""
    said: list[str] = []

    def heard(message: Message) -> None:
        if isinstance(message, Notify):
            said.append(message.notification.message)

    async def whole() -> None:
        app = ReviewApp(workspace.path)
        async with app.run_test(size=size, message_hook=heard) as pilot:
            await until(pilot, lambda: app.room)
            await session(app, pilot, said)

    asyncio.run(whole())


async def until(pilot: Pilot[None], true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, screen_text(pilot.app)
        await pilot.pause(0.1)


def screen_text(app: Any) -> str:
    """What the terminal would show, line by line."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def is_safe(text: str) -> bool:
    """Does nothing in it move a cursor or turn the writing round?"""
    return not any(c in text for c in "\x1b\x07\x9b\u202e\u2066")
