"""Tables of demonstrations, and the keys that prune and relabel the one that is shown: the same in every tab and
dialog that shows one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from ..engine.base.arrays import Int64s
from ..engine.base.errors import UsageError, counted
from ..engine.pool.records import Demonstration
from ..engine.store.demonstrations import active_labels, fetch
from ..engine.store.workspace import Workspace
from ..render.columns import LineColumn
from .actions import Action
from .dialogs.dialog import Offer, Option, Pick
from .model import PoolRow
from .widgets.lines import Line
from .widgets.table import LineTable, choosing
from .workers import BackgroundWork

if TYPE_CHECKING:
    from .app import ReviewApp
    from .decisions import Then

VERBS = frozenset({"prune_row", "relabel_row"})

NO_ROW = "no row here"
"""What a key for a row says where there is none."""

ODD_BREAKS = frozenset("\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
"""Where Textual breaks lines as well, and writes a plain line break."""


def row_actions(owner: str) -> tuple[Action, ...]:
    """The actions of `RowKeys`, as those of a tab or widget."""
    return (
        Action(f"{owner}.prune", "x", "Prune", "Prune the demonstration under the cursor",
               "icl-curate prune --demo ID", call="prune_row"),
        Action(f"{owner}.relabel", "e", "Relabel", "Correct the output of the demonstration under the cursor",
               "icl-curate relabel ID OUTPUT", call="relabel_row"),
    )  # fmt: skip


class RowKeys(BackgroundWork):
    """A part of the screen with a demonstration under its cursor. Its actions are those of `row_actions`; one on which
    the keys cannot act, such as a passage of a query, is None. A decision is made about the row that is shown: it fails
    if that is no longer in the pool, even if another row has its id now."""

    def row_here(self) -> PoolRow | None:
        """The row under the cursor."""
        raise NotImplementedError

    def row_decided(self) -> None:
        """A decision was made here."""

    def offers(self, action: str) -> bool:
        """For `check_action`: whether the action is none of these, or there is a row."""
        return action not in VERBS or self.row_here() is not None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.offers(action)

    def action_prune_row(self) -> None:
        if (row := self._target()) is not None:
            self.review.decide_rows("prune", [row.row], row.reason, self.row_decided)

    def action_relabel_row(self) -> None:
        if (row := self._target()) is not None:
            relabel_row(self, row, self.row_decided)

    def _target(self) -> PoolRow | None:
        row = self.row_here()
        if row is not None and row.awaited:
            self.app.notify("still selecting: nothing was done", severity="warning")
            return None
        return row


def again(app: ReviewApp) -> None:
    """Repeat the last decision on the row under the cursor, whatever part of the screen has it."""
    focused = app.focused
    parts: list[Any] = [node for node in (focused or app).ancestors_with_self if hasattr(node, "row_here")]
    row: PoolRow | None = parts[0].row_here() if parts else None
    if row is None or row.awaited or app.latest is None:
        app.notify("no decision on a row to repeat yet" if app.latest is None else NO_ROW)
        return
    verb, output = app.latest
    if isinstance(focused, LineTable):
        focused.cursor += 1
    if verb == "relabel":
        app.relabel({row.row: output}, row.reason)
    else:
        app.decide_rows(verb, [row.row], row.reason)


class MarkKeys(BackgroundWork):
    """A table of rows, each of which can be marked for the next decision."""

    model: Any

    def stand(self) -> bool:
        """Whether the keys are meant for the rows that are shown; if not, the user is told."""
        return True

    def show_status(self) -> None:
        """Show how many are marked."""

    def action_range(self) -> None:
        self.query_one(LineTable).begin_range()

    def action_mark(self) -> None:
        table = self.query_one(LineTable)
        if self.switch(self.model.rows[table.end_range()]):
            table.cursor += 1

    def action_mark_all(self) -> None:
        self.switch(self.model.rows)

    def clear_level(self) -> bool:
        """Leave a range, else the marks, as far as there are any; False if there are none."""
        table = self.query_one(LineTable)
        if table.range_from is not None:
            table.range_from = None
        elif self.model.marks.count:
            self.model.marks.clear()
        else:
            return False
        self.show_marks()
        return True

    def has_level(self) -> bool:
        """Whether there is something for `clear_level`."""
        return self.query_one(LineTable).range_from is not None or bool(self.model.marks.count)

    def switch(self, rows: Int64s) -> bool:
        """Mark these, or unmark them; False if there are none."""
        if not len(rows) or not self.stand():
            return False
        self.model.marks.switch(rows)
        self.show_marks()
        return True

    def mark_again(self, rows: Int64s) -> None:
        """The decision that took these marks away was undone."""
        self.model.marks.add(rows)
        self.show_marks()

    def show_marks(self) -> None:
        self.query_one(LineTable).redraw()
        self.show_status()


def relabel_row(node: BackgroundWork, row: PoolRow, then: Then = None) -> None:
    """Ask for another output of the row: one of its options, one of the pool's labels, or for an open answer a text;
    decide on it, then call ``then``. The list opens at once, so that it gets the keys."""
    review = node.review

    def relabel(output: str) -> None:
        if output:
            review.relabel({row.row: output}, row.reason, then)
        else:
            node.app.notify("an output may not be empty: nothing was changed, x prunes the row", severity="warning")

    outputs = lambda: other_outputs(review.opened(), fetch(review.opened(), [row.row])[0])  # noqa: E731
    node.ask(Pick(f"Correct output of {row.id}", more=outputs, does="Correct"), relabel)


def relabel_rows(node: BackgroundWork, rows: Int64s, reason: str, then: Then) -> None:
    """Ask for the label of several rows, which is given to all of them, then call ``then``."""
    review = node.review

    def labels() -> Offer:
        names = active_labels(review.opened())
        if not names:
            raise UsageError("answers that are not labels are corrected one by one", "c clears the marks")
        return Offer([Option(name, f"{count:,}") for name, count in names.items()])

    def relabel(output: str) -> None:
        review.relabel(dict.fromkeys(rows.tolist(), output), reason, then)

    node.ask(Pick(f"Correct label of {counted(len(rows), 'demonstration')}", more=labels, does="Correct"), relabel)


def other_outputs(workspace: Workspace, shown: Demonstration) -> Offer:
    """The outputs to choose from, with a note on each, or the open answer to edit, below the input. For threads."""
    notes = dict.fromkeys(shown.options, "")
    notes = notes or {name: f"{count:,}" for name, count in active_labels(workspace).items()}
    options = [Option(output, note) for output, note in notes.items() if output != shown.output]
    if not options:
        if ODD_BREAKS & {*shown.output}:
            raise UsageError("its line breaks cannot be kept here", f"icl-curate relabel {quote(shown.id)} OUTPUT")
        return Offer(text=shown.output, told=shown.input)
    return Offer(options, told=f"{shown.input}  →  {shown.output}")


class RowTable(LineTable, inherit_bindings=False):
    """A table whose lines are demonstrations."""

    TITLE = "Demonstrations"
    ACTIONS = choosing("row.read", "Inspect", "Show the whole demonstration")


class PoolTable(RowTable, RowKeys, inherit_bindings=False):
    """Demonstrations that can be pruned and relabelled here: the keys act on the line under the cursor while the table
    is focused."""

    ABOUT = "The demonstration under the cursor."
    ACTIONS = (*row_actions("row"), *RowTable.ACTIONS)

    def __init__(self, columns: Sequence[LineColumn], pick: Callable[[int], PoolRow | None], **more: Any) -> None:
        """``pick``: the row in a line; None if it is no row of the pool."""
        super().__init__(columns, **more)
        self._pick, self._offered = pick, False

    def row_here(self) -> PoolRow | None:
        return self._pick(self.cursor) if self.count else None

    def put(self, first: int, lines: Sequence[Line]) -> None:
        super().put(first, lines)
        self._offer()

    def watch_cursor(self, old: int, new: int) -> None:
        super().watch_cursor(old, new)
        self._offer()

    def _offer(self) -> None:
        """Show the keys in the footer while there is a row to act on."""
        if self.has_focus and (self.row_here() is not None) != self._offered:
            self.refresh_bindings()
        self._offered = self.row_here() is not None
