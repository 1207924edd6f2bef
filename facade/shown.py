"""Results in a notebook: drawn as the commands print them, and as frames and plots."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from ..engine.base.contract import Reported, to_json
from ..engine.base.errors import UsageError
from ..engine.base.packages import require
from ..render import show

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

WIDTH = 130
"""Characters of a line in a notebook."""
LISTS: Mapping[str, str] = {
    "audit": "estimators",
    "calibration": "rounds",
    "calibration-runs": "runs",
    "calibration-set": "arms",
    "check": "rows",
    "key-ablation": "places",
    "curation": "steps",
    "diff": "rows",
    "evaluation": "methods",
    "preview": "demonstrations",
    "skipped": "skipped",
    "sweep": "points",
    "topics": "topics",
    "tuning": "candidates",
    "vote-tuning": "curve",
}
"""By its kind, the list in a result that makes a frame."""


class _Page(io.StringIO):
    """A terminal in memory."""

    def isatty(self) -> bool:
        return True


class Shown:
    """A ``result`` of the engine with all its attributes, and how a notebook shows it. ``workspace``, ``llm``: what the
    commands it suggests are to have."""

    workspace: Path | None = None
    llm: Mapping[str, str] = {}

    def __init__(self, result: Any, *more: Any, draw: Callable[[], None] | None = None) -> None:
        self.result = result
        self._draw = draw or partial(show, result.kind, result, *more)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what pickle and copy look for
            raise AttributeError(name)
        return getattr(self.result, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name in dir(self.result) if not name.startswith("_"))]

    def as_json(self) -> dict[str, Any]:
        """The object that the command prints with ``--json``, without its ``schema_version`` and what only a command
        says: whether it ran dry, and what it decided besides."""
        told: dict[str, Any] = self.result.as_json()
        return told

    def to_pandas(self) -> pandas.DataFrame:
        """The list in the result as a frame: methods of an evaluation, steps of a curation. Raises `UsageError` for a
        result without one."""
        told = self.as_json()
        name = LISTS.get(told.get("kind", ""))
        if name is None:
            raise UsageError(f"a result of the kind '{told.get('kind')}' has no list", "as_json() has all of it")
        return _frame(told[name])

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw an evaluation, a sweep, a curation or the sources with matplotlib. Raises `UsageError` for others."""
        from .plots import plot

        return plot(self.as_json(), axes)

    def __repr__(self) -> str:
        return self._drawn(get_terminal_size().columns, styled=False)

    def _repr_html_(self) -> str:
        from rich.console import Console
        from rich.text import Text

        page = Console(record=True, file=io.StringIO(), width=WIDTH, force_jupyter=False)
        page.print(Text.from_ansi(self._drawn(WIDTH, styled=True)), soft_wrap=True)
        return page.export_html(inline_styles=True, code_format=_PRE)

    def _drawn(self, width: int, *, styled: bool) -> str:
        """What the command prints."""
        from ..render.console import drawn_to
        from ..render.suggested import suggesting

        page = _Page() if styled else io.StringIO()
        with redirect_stdout(page), drawn_to(width), suggesting(self.workspace, **self.llm):
            self._draw()
        return page.getvalue().rstrip("\n")


_PRE = """<pre style="white-space: pre; overflow-x: auto; line-height: normal; font-family: Menlo, Consolas, monospace">
{code}</pre>"""
"""JupyterLab would wrap the lines of a table."""


class ShownRows(Shown, Sequence[Any]):
    """A list of the engine's rows, and how a notebook shows it. ``name`` is their field of its ``--json``, ``told``
    are its others."""

    def __init__(
        self,
        kind: str,
        name: str,
        rows: Sequence[Any],
        *more: Any,
        draw: Callable[[], None] | None = None,
        told: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(list(rows), draw=draw or partial(show, kind, rows, *more))
        self._kind, self._name, self._told = kind, name, told or {}

    def as_json(self) -> dict[str, Any]:
        rows = [row.as_json() if isinstance(row, Reported) else to_json(row) for row in self.result]
        return {"kind": self._kind, self._name: rows, **self._told}

    def to_pandas(self) -> pandas.DataFrame:
        """A row each."""
        return _frame(self.as_json()[self._name])

    def __getitem__(self, place: Any) -> Any:
        return self.result[place]

    def __len__(self) -> int:
        return len(self.result)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.result)


def _frame(rows: Any) -> pandas.DataFrame:
    """A frame of rows, or of rows by name."""
    require("frames", "pandas")
    import pandas

    if isinstance(rows, Mapping):
        return pandas.DataFrame.from_dict(rows, orient="index")
    return pandas.DataFrame(list(rows))
