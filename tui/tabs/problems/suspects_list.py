"""Rows that may be wrong, with what speaks against them: accept, reject, and what that leaves of each label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile

import numpy as np
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Static

from ....engine.base.arrays import Int64s
from ....engine.base.errors import CurateError, counted
from ....engine.base.progress import CancelToken, Event, Monitor
from ....engine.checks.corrections import corrections, others, reasons
from ....engine.checks.suspects import PoolSuspects, Suspect, SuspectsState, find_suspects, pool_state
from ....engine.store.browse import Listed, holding, listed
from ....engine.store.decisions import Action as Verb
from ...actions import Action
from ...dialogs.dialog import Offer, Option, Pick
from ...model import PoolRow
from ...row_keys import NO_ROW, MarkKeys, relabel_row
from ...widgets.demonstration import RowDetails, as_json, read_details
from ...widgets.field import Field
from ...widgets.reader import Detail
from ...widgets.table import MOST_KEPT, LineTable
from ...workers import at_rest, seldom
from . import suspects as texts
from .lists import ProblemList
from .suspects import SuspectsModel

PAGE = 180
"""Lines drawn again at once after a decision: three tall screens."""


class SuspectsList(ProblemList, MarkKeys):
    """The list of suspects; the check starts when it is first displayed and ends when it is hidden."""

    TITLE = "Suspects"
    ABOUT = "Rows with findings of the check, or a posterior of .5 or more; doubt: the larger of both, worst first."
    PANES = "#suspect-table", "Detail"
    ACTIONS = (
        Action("suspects.back", "escape", "Back", "Back to the list"),
        Action("suspects.prune", "x", "Prune", "Accept: prune the marked suspects, or this one", "icl-curate check",
               call="decide('prune')"),
        Action("suspects.relabel", "e", "Relabel", "Correct the label of the marked suspects, or of this one",
               "icl-curate relabel"),
        Action("suspects.keep", "r", "Keep", "Reject: keep the marked suspects, or this one, for good",
               call="decide('keep')"),
        Action("suspects.mark", "space", "Mark", "Mark the suspect for the next decision"),
        Action("suspects.mark_all", "a", "Mark all", "Mark all suspects shown, or none"),
        Action("suspects.range", "V", "Range", "Mark from here to where space is pressed", footer=False),
        Action("suspects.search", "slash", "Search", "Search inputs, outputs and beginnings of ids", footer=False),
        Action("suspects.kind", "f", "Kind", "Show suspects of one kind", "icl-curate check --kind KIND"),
        Action("suspects.labels", "l", "Labels", "Show what would be left of each label, or the evidence"),
        Action("suspects.read", "enter", "Read", "Read the evidence and the whole demonstration", footer=False),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.model = SuspectsModel()
        self._look_soon = at_rest(self, 0.06, self._look)
        self.table = LineTable(texts.SUSPECTS, id="suspect-table", marked=self.model.is_marked, moved=self._look_soon)
        self.table.sorted_by = "weight", True
        self.labels = LineTable(texts.LABELS, id="labels", marked=lambda line: False, message="reading …")
        self._anew = False
        """The list was opened, and its state was not read since."""
        self._listed: dict[int, Listed] = {}
        """Rows that were read, by number: they never change, and a decision would blank the list for a moment."""

    def compose(self) -> ComposeResult:
        yield Static(id="suspected")
        yield Field(placeholder="search", compact=True, id="suspect-search")
        with Horizontal(id="suspect-halves"):
            yield self.table
            yield Detail()
            yield self.labels

    # The check.

    def on_hide(self) -> None:
        if not self.is_open:
            self.forget("load")
            self.forget("check")
            self.model.stop()

    def on_unmount(self) -> None:
        self.model.stop()

    def copied(self) -> str:
        return as_json(self.model.seen.demonstration) if self.model.seen else ""

    def look(self, anew: bool) -> None:
        """Read the state of the pool, and check it if it has changed; ``anew``: also after mere decisions."""

        def read() -> SuspectsState:
            return pool_state(self.review.opened(), self.review.settings())

        self._anew |= anew  # an older reading, whose state is dropped, may have been for that

        def show_state(state: SuspectsState) -> None:
            self.model.pool_state = state
            again, self._anew = self._anew, False
            if check := self.model.begin(again):
                self._carry_out(check)
            self._draw()
            self._search()

        self.in_thread("load", read, show_state)

    def _carry_out(self, check: CancelToken) -> None:
        monitor = Monitor(seldom(lambda event: self.call_later(self._progressed, check, event)), check)

        def work() -> PoolSuspects:
            return find_suspects(self.review.opened(), self.review.settings(), monitor)

        async def found(suspects: PoolSuspects) -> None:
            async with self.review.in_turn:  # a question about rows of the list stands above them
                self.model.take(suspects)
            self.look_again()

        self.in_thread("check", work, found)

    def _progressed(self, check: CancelToken, event: Event) -> None:
        """The check has reached ``event``."""
        if check is self.model.check:
            self.model.progress = event
            self.show_status()

    def failed(self, kind: str, error: CurateError) -> None:
        if kind == "check":
            self.model.stop()
            self._draw()
        super().failed("load" if kind == "check" else kind, error)

    # The list.

    def _draw(self) -> None:
        model, table, before = self.model, self.table, self.model.rows
        cursor = model.arrange(table.cursor)
        table.message = "checking …" if model.check else "no suspects" if model.found else ""
        table.size_to(len(model.shown), same=np.array_equal(before, model.rows))
        table.cursor = cursor
        first = max(0, round(table.scroll_y) - table.size.height)
        known = takewhile(lambda one: one.row in self._listed, model.shown[first : first + PAGE])
        table.put(first, [texts.suspect_line(self._listed[one.row], one, model.sought) for one in known])
        self.labels.message = "the answers of this pool are not labels" if model.pool_state else "reading …"
        self.labels.fill([texts.label_line(count) for count in model.labels()])
        self.show_status()
        self._look_soon()

    def show_status(self) -> None:
        self.query_one("#suspected", Static).update(texts.suspects_line(self.model))

    @on(LineTable.Wanted, "#suspect-table")
    def _page(self, event: LineTable.Wanted) -> None:
        shown, first, last = self.model.shown, event.index, event.last
        rows = self.model.rows[first:last]

        def put(page: Sequence[Listed]) -> None:
            if len(self._listed) > MOST_KEPT:
                self._listed.clear()
            self._listed.update((row.row, row) for row in page)
            if shown is self.model.shown:
                pairs = zip(page, shown[first:], strict=False)
                self.table.put(first, [texts.suspect_line(row, one, self.model.sought) for row, one in pairs])

        self.in_thread("page", lambda: listed(self.review.opened(), rows, np.empty(0, np.int64)), put)

    def _look(self) -> None:
        suspect = self.model.at(self.table.cursor)
        looked = partial(self._looked, suspect)
        if suspect is None:
            self.forget("detail")
            looked(None)
        else:
            self.in_thread("detail", lambda: read_details(self.review.opened(), suspect.row), looked)

    def _looked(self, one: Suspect | None, seen: RowDetails | None) -> None:
        self.model.seen = seen
        self.query_one(Detail).show_row(seen, texts.evidence_table(one) if one and seen else None)

    # Actions.

    @on(LineTable.Chosen, "#suspect-table")
    def action_read(self) -> None:
        self.remove_class("-labels")
        self.add_class("-reading")
        self.call_after_refresh(self.query_one(Detail).focus)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if isinstance(self.screen.focused, Input):
            return action == "back"
        if action == "back" and (self.has_class("-labels") or self.model.sought or self.has_level()):
            return True
        return super().check_action(action, parameters)

    def action_back(self) -> None:
        """From the text or the labels to the list, from there out of a range, from the marks, and to all of it."""
        at_list = self.table.has_focus and not (self.has_class("-reading") or self.has_class("-labels"))
        if at_list and self.clear_level():
            return
        if self.table.has_focus or isinstance(self.screen.focused, Input):
            self.query_one("#suspect-search", Field).value = ""
            self.remove_class("-searching")
        self.remove_class("-reading", "-labels")
        self.table.focus()
        self.refresh_bindings()

    def action_labels(self) -> None:
        self.remove_class("-reading")
        self.toggle_class("-labels")
        self.table.focus()
        self.refresh_bindings()

    def action_search(self) -> None:
        self.add_class("-searching")
        self.query_one("#suspect-search", Field).focus()

    @on(Input.Changed, "#suspect-search")
    def _search(self) -> None:
        """Search all that the check found: other rows are listed when the kind changes, or a decision is undone."""
        sought, every = self.query_one("#suspect-search", Field).value.strip(), self.model.found
        rows = np.array([one.row for one in every.rows] if every else [], np.int64)
        if not sought and not self.model.sought:
            self.forget("search")  # what was typed before, and is not found yet
            return

        def found(holding_rows: Int64s) -> None:
            self.model.search(sought, holding_rows)
            self._draw()

        self.in_thread("search", lambda: holding(self.review.opened(), rows, sought), found)

    @on(Input.Submitted, "#suspect-search")
    def _submitted(self) -> None:
        self.table.focus()

    def action_kind(self) -> None:
        def taken(kind: str) -> None:
            self.model.kind = kind
            self._draw()

        options = [Option("all", value=""), *(Option(kind, f"{count:,}") for kind, count in self.model.kinds())]
        self.ask(Pick("Kind", Offer(options), now=self.model.kind), taken)

    def row_here(self) -> PoolRow | None:
        """The demonstration under the cursor."""
        one = self.model.at(self.table.cursor)
        return _pool_row(one) if one else None

    def action_relabel(self) -> None:
        if self.table.range_from is not None:
            self.action_mark()
        targets, state = self.model.targets(self.table.cursor), self.model.pool_state
        marked = self.model.marks.rows
        if not targets or state is None:
            self.app.notify(NO_ROW)
            return
        options = corrections(targets, state.labels)
        if not options and len(targets) > 1:
            self.app.notify("answers that are not labels are corrected one by one")
            return
        if not options:
            relabel_row(self, _pool_row(targets[0]), partial(self._decided, [targets[0].row], marked))
            return
        by_id = {one.id: one for one in targets}

        def taken(outputs: Mapping[str, str]) -> None:
            chosen = [_pool_row(by_id[name]) for name in outputs]
            rows, why = [row.row for row in chosen], [row.reason for row in chosen]
            new = dict(zip(rows, outputs.values(), strict=True))
            self.review.relabel(new, why, partial(self._decided, rows, marked), others(targets, outputs))

        seen = self.model.seen.demonstration if self.model.seen else None
        name = targets[0].id if len(targets) == 1 else counted(len(targets), "demonstration")
        told = f"{seen.input}  →  {seen.output}" if len(targets) == 1 and seen and seen.id == name else ""
        listed = Offer([Option(choice.name, choice.note, value=choice.outputs) for choice in options], told=told)
        self.ask(Pick(f"Correct label of {name}", listed, does="Correct"), taken)

    def action_decide(self, verb: Verb) -> None:
        if self.table.range_from is not None:
            self.action_mark()
        if targets := self.model.targets(self.table.cursor):
            rows, marked = [target.row for target in targets], self.model.marks.rows
            self.review.decide_rows(verb, rows, reasons(verb, targets), partial(self._decided, rows, marked))
        else:
            self.app.notify(NO_ROW)

    def _decided(self, rows: Sequence[int], marked: Int64s) -> Callable[[], None]:
        """They leave the list at once: the next key is meant for the row after them. What was ``marked`` when the key
        was pressed is so no more, as other marks are for another decision. Returns what marks it again."""
        self.forget("load")
        self.model.marks.drop(marked)
        self.model.leave_out(rows)
        self._draw()
        return partial(self.mark_again, marked)


def _pool_row(one: Suspect) -> PoolRow:
    return PoolRow(one.row, one.id, f"in review: {', '.join(one.kinds)}")
