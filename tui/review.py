"""Starting ``icl-curate review``: in this terminal, or served to a browser."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.base.errors import UsageError
from ..engine.base.packages import require
from ..engine.store import locks
from ..render.terminal import narrate

if TYPE_CHECKING:
    from textual.screen import Screen

    from .completion import CommandLine


def review(
    path: Path,
    allow_commands: bool = False,
    commands: CommandLine = None,
    only: Callable[[], Screen[Any]] | None = None,
) -> int:
    """Run the app on the workspace at ``path`` and return the exit code; with ``only``, one dialog until it closes.

    A session that is served to a browser is limited unless it was started with ``allow_commands``. Raises `UsageError`
    if there is no terminal, because Textual would block. If the workspace is locked, the tabs show this and try again;
    if there is none yet, they show how to create it. What the app did not expect is raised when it has ended.
    """
    served = "TEXTUAL_DRIVER" in os.environ  # by textual-serve, over pipes
    if allow_commands and not served:
        raise UsageError("--allow-commands only applies with --serve", "icl-curate review")
    name = "verify" if only else "review"
    if not served and not (sys.stdin.isatty() and sys.stderr.isatty()):
        others = (
            "verify --json lists the rows" if only else "status, sources, demos, prune … do the same; each has --json"
        )
        raise UsageError(f"{name} needs a terminal", f"icl-curate {others}")
    if not served and os.environ.get("TERM") in ("", "dumb"):
        raise UsageError(f"{name} needs a screen, not TERM=dumb", f"TERM=xterm-256color icl-curate {name}")
    if not served and not (getattr(sys.stderr, "encoding", None) or "").lower().replace("-", "").startswith("utf8"):
        raise UsageError(f"{name} needs a terminal that is written to in UTF-8", f"PYTHONUTF8=1 icl-curate {name}")
    os.environ.setdefault("ESCDELAY", "25")  # a key right after esc is a key of its own: `:`, not alt and `:`
    from .app import ReviewApp

    app = ReviewApp(path, limited=served and not allow_commands, commands=commands, tour=not served, only=only)

    async def run() -> None:
        await app.run_async()
        if not served:
            app.ending.left()

    before, locks.on_wait = locks.on_wait, app.waits
    try:
        asyncio.run(run())
    finally:
        locks.on_wait = before
    app.ending.done()
    if app.fault is not None:
        raise app.fault
    if not served:
        from ..engine.store.workspace import DEFAULT
        from .live_jobs import on_leaving

        if line := on_leaving(app.folder, Path(DEFAULT)):
            narrate(line)
    return app.return_code or 0


def serve(path: Path, port: int, allow_commands: bool = False) -> None:
    """Serve the app to browsers on this machine until interrupted: every page has its own session.

    Raises `UsageError` without the extra ``serve``, or if the port is not available.
    """
    require("serving to a browser", "textual_serve")
    from ..serving.browser import serve as serve_until_interrupted

    serve_until_interrupted(path, port, allow_commands)
