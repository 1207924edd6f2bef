"""The rich consoles for tables, colours and bars on stdout and stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ..engine.pool.display import display_text
from .terminal import past

_width: ContextVar[int | None] = ContextVar("_width", default=None)


@contextmanager
def drawn_to(width: int) -> Iterator[None]:
    """Within the block `stdout` is this wide, whatever it is."""
    before = _width.set(width)
    try:
        yield
    finally:
        _width.reset(before)


class SafeConsole(Console):
    """Writes rich's own colours and cursor movements to stdout or stderr, but no control characters or markup from
    texts."""

    def __init__(self, stream: Any, width: int | None = None, soft_wrap: bool = False) -> None:
        super().__init__(
            file=past(stream), width=width, soft_wrap=soft_wrap, highlight=False, markup=False, emoji=False,
            force_jupyter=False,  # rich would write to the notebook past the stream
        )  # fmt: skip

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(display_text(segment.text), segment.style)


def stdout() -> SafeConsole:
    """For data. If it is not a terminal, nothing is cut to a width unless the environment variable COLUMNS is set."""
    if (width := _width.get()) is not None:
        return SafeConsole(sys.stdout, width=width)
    fitted = sys.stdout.isatty() or "COLUMNS" in os.environ
    return SafeConsole(sys.stdout, width=None if fitted else 200, soft_wrap=not fitted)


def stderr() -> SafeConsole:
    """For messages."""
    return SafeConsole(sys.stderr, soft_wrap=True)


GIVEN_BACK = b"".join(
    b"\x1b[" + code
    for code in (
        b"?2048l", b"?2004l", b"?1000l", b"?1003l", b"?1015l", b"?1006l", b"<u", b"?1004l", b"?25h", b"?1049l",
    )
)  # fmt: skip
"""Ends what Textual switches on in a terminal: reports of size, paste, mouse, keys and focus; the cursor and the first
screen are shown again."""
ATTEMPTS = 100
"""How often to try within a second to write that."""


def give_back_screen() -> None:
    """End what an app did to the terminal, as far as that accepts output. Call it before the process ends: what its
    other threads still write, as Textual's to the same stream, is not shown.
    """
    output = sys.__stderr__.fileno() if sys.__stderr__ else 2
    terminal = os.dup(output)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), output)
    os.set_blocking(terminal, False)
    try:
        for _ in range(ATTEMPTS):
            with suppress(BlockingIOError):  # it takes no output, or another thread is within a write
                os.write(terminal, GIVEN_BACK)
                break
            time.sleep(0.01)
    finally:
        os.set_blocking(terminal, True)  # the shell goes on with the same open terminal
