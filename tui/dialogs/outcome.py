"""One query of an evaluation: the reference, the answers, and the demonstrations shown, to be pruned and corrected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from ...engine.base.arrays import Int64s
from ...engine.pool.display import display_line, display_text
from ...engine.store.browse import Listed, listed, pruned_rows
from ...engine.store.runs import QueryOutcome
from ...engine.store.workspace import Workspace
from ...render.columns import LineColumn
from ..actions import Action, bindings
from ..model import PoolRow
from ..row_keys import RowKeys, row_actions
from ..widgets.demonstration import RowDetails, read_details
from ..widgets.detail import Detail
from ..widgets.keybar import KeyBar
from ..widgets.lines import Line
from ..widgets.rowtable import RowTable
from ..workers import at_rest
from .dialog import Dialog

if TYPE_CHECKING:
    from ..tab import ReviewSession

MOST = 6_000
"""Maximum characters displayed of the query."""

SHOTS = (
    LineColumn("place", "", 2, right=True, sortable=False),
    LineColumn("id", "id", 8, rank=4, grow=1, most=20, cut="start", sortable=False),
    LineColumn("source", "source", 8, rank=3, grow=1, most=20, cut="middle", sortable=False),
    LineColumn("input", "input", 16, grow=6, sortable=False),
    LineColumn("output", "output", 10, grow=2, most=32, sortable=False),
    LineColumn("state", "", 6, rank=1, sortable=False),
)


@dataclass(frozen=True, slots=True)
class OutcomeOf:
    """Whose outcome it is: a run, a method, and the ``other`` one that it is compared with."""

    run: int
    method: str
    other: str | None


class OutcomeDialog(Dialog[None], RowKeys):
    """Shows a `QueryOutcome` above its demonstrations, best first, without those that no longer exist."""

    TITLE = "Query"
    ABOUT = "A query of an evaluation, and what was in its prompt. ✗ pruned."
    ACTIONS = (
        *row_actions("outcome"),
        Action("outcome.undo", "u", "Undo", "Undo the latest decision", "icl-curate undo"),
        Action("outcome.help", "question_mark,f1", "Help", "Show the keys of the focused part"),
        Action("outcome.close", "escape,q", "Close", "Back to the queries"),
    )
    BINDINGS = bindings(ACTIONS)

    def __init__(self, review: ReviewSession, outcome: QueryOutcome, of: OutcomeOf) -> None:
        super().__init__()
        self._review, self._outcome, self._of = review, outcome, of
        self._shots: Sequence[Listed] = ()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog outcome"):
            with VerticalScroll(can_focus=False, id="told"):
                yield Static(_text(self._outcome, self._of), id="outcome")
            yield Static(Text(f"shown by {display_line(self._of.method)}, best first", "primary"), id="shown")
            yield RowTable(SHOTS, marked=lambda line: False)
            yield Detail()
        yield KeyBar(["close"])

    def on_mount(self) -> None:
        self._look_soon = at_rest(self, 0.06, self._look)
        self.table.message = "reading …"
        self.table.focus()
        self.reload()

    @property
    def table(self) -> RowTable:
        return self.query_one(RowTable)

    def reload(self) -> None:
        """Read the demonstrations again: a decision was made."""
        rows = np.array(self._outcome.demonstrations, np.int64)
        self.in_thread("load", lambda: _shots(self._review.opened(), rows), self._show)

    def _show(self, shots: Sequence[Listed]) -> None:
        self._shots = shots
        self.table.message = "no demonstrations"
        self.table.fill([_line(place, shot, self._outcome.wanted) for place, shot in enumerate(shots, 1)])
        self.refresh_bindings()
        self._look_soon()

    def row_here(self) -> PoolRow | None:
        at = self.table.cursor
        if at >= len(self._shots):
            return None
        reason = f"in review, in the prompt of {self._outcome.id} ({self._of.method}, run {self._of.run})"
        return PoolRow(self._shots[at].row, self._shots[at].id, reason)

    def row_decided(self) -> None:
        self.reload()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.offers(action)

    @on(RowTable.Moved)
    def _moved(self) -> None:
        self._look_soon()

    def _look(self) -> None:
        row = self.row_here()
        if row is not None:
            self.in_thread("detail", lambda: read_details(self._review.opened(), row.row), self._looked)

    def _looked(self, seen: RowDetails | None) -> None:
        self.query_one(Detail).show_row(seen)

    @on(RowTable.Chosen)
    def _inspect(self) -> None:
        self.add_class("-inspecting")
        self.call_after_refresh(self.query_one(Detail).focus)

    def action_undo(self) -> None:
        self._review.undo(self.reload)

    async def action_help(self) -> None:
        await self.app.run_action("help", default_namespace=self.app)

    def action_close(self) -> None:
        """From the demonstration to the list, and from there to the queries."""
        if self.has_class("-inspecting"):
            self.remove_class("-inspecting")
            self.table.focus()
        else:
            self.dismiss()


def _shots(workspace: Workspace, rows: Int64s) -> list[Listed]:
    return listed(workspace, rows, pruned_rows(workspace))


def _line(place: int, shot: Listed, wanted: str) -> Line:
    output = Text(display_line(shot.output), "good" if shot.output == wanted else "")
    state = Text("pruned", "bad") if shot.pruned else Text()
    cells = (Text(str(place), "muted"), shot.id, shot.source, display_line(shot.input), output, state)
    return Line(cells, "muted" if shot.pruned else "", ("✗", "bad") if shot.pruned else (" ", ""))


def _text(outcome: QueryOutcome, of: OutcomeOf) -> Text:
    text = Text.assemble((display_line(outcome.id, 80), "title"), "\n", display_text(outcome.input[:MOST]))
    if len(outcome.input) > MOST:
        text.append(f"\n… {len(outcome.input) - MOST:,} more characters", "warn")
    text.append("\nwanted  ", "primary").append(display_line(outcome.wanted, 600))
    _answer(text, of.method, outcome.answer, outcome.failure, outcome.right)
    if outcome.uncertainty is not None:
        text.append(f"  uncertainty {outcome.uncertainty:.3f}", "muted")
    if of.other is not None and outcome.other_right is not None:
        _answer(text, of.other, outcome.other_answer, "no answer", outcome.other_right)
    return text


def _answer(text: Text, method: str, answer: str | None, failure: str, right: float | None) -> None:
    text.append(f"\n{display_line(method)}  ", "primary")
    text.append(display_line(answer if answer is not None else failure, 600), "good" if right == 1 else "bad")
    if right is not None and 0 < right < 1:
        text.append(f"  right under {right:.0%} of the seeds", "warn")
