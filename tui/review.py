"""Starting ``icl-curate review``: in this terminal, or served to a browser."""

from __future__ import annotations

import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from ..engine.errors import UsageError
from ..engine.store import locks


def review(path: Path) -> int:
    """Run the app on the workspace at ``path`` and return the exit code.

    Raises `UsageError` off a terminal, where Textual would wait for ever. Where the workspace is locked the tabs say so
    and try again; where there is none yet, they say how it is made.
    """
    served = "TEXTUAL_DRIVER" in os.environ  # by textual-serve, over pipes
    if not served and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "review needs a terminal", "icl-curate status, sources, demos, prune … do the same; each has --json"
        )
    from .app import ReviewApp

    app = ReviewApp(path)
    locks.on_wait = app.waits
    app.run()
    if app.late is not None:
        app.late.cancel()
        app.late.join()
    return app.return_code or 0


def serve(path: Path, port: int) -> None:
    """Serve the app to browsers on this machine until interrupted: every page is a session of its own.

    Raises `UsageError` without the extra ``serve``.
    """
    if find_spec("textual_serve") is None:
        raise UsageError("serving to a browser needs textual-serve", 'pip install "icl-curate[serve]"')
    from textual_serve.server import Server

    program = "from icl_curate.cli import main; main()"
    command = shlex.join([sys.executable, "-c", program, "review", "--workspace", str(path.resolve())])
    Server(command, host="localhost", port=port, title="icl-curate review").serve()
