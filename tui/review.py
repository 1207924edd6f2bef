"""Starting ``icl-curate review``: in this terminal, or served to a browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..engine.errors import UsageError


def review(path: Path) -> int:
    """Run the app on the workspace at ``path`` and return the exit code.

    Raises `UsageError` off a terminal, where Textual would wait for ever, and `WorkspaceError` where there is no
    workspace. A locked one opens: the tabs say so and try again.
    """
    served = "TEXTUAL_DRIVER" in os.environ  # by textual-serve, over pipes
    if not served and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "review needs a terminal", "icl-curate status, sources, demos, prune … do the same; each has --json"
        )
    if not any(path.glob("*.duckdb")):  # by its name: DuckDB itself is loaded after the first paint
        from ..engine.store.workspace import Workspace

        Workspace.open(path)
    from .app import ReviewApp

    app = ReviewApp(path)
    app.run()
    return app.return_code or 0
