"""Calibrate: a queue of validation queries, their documents and answers with scores, round by round."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from ....engine.base.errors import CurateError, UsageError
from ....engine.papers.calibrate.results import SteppedQuery
from ....engine.pool.display import display_line
from ....engine.pool.records import Query
from ....engine.store.browse import Listed, listed, pruned_rows
from ....engine.store.decisions import Change
from ....engine.store.workspace import Workspace
from ....render.calibration import verdict_line
from ...actions import Action
from ...dialogs.dialog import Offer, Pick
from ...dialogs.start import propose
from ...model import Empty, PoolRow
from ...row_keys import PoolTable
from ...tab import LLMTab
from ...widgets.demonstration import RowDetails, read_details
from ...widgets.reader import Reader
from ...widgets.table import LineTable
from ...workers import error_text, later
from ..preview import rows as texts
from .model import (
    DOCUMENTS,
    QUEUE,
    ROUNDS,
    CalibrateData,
    CalibrateModel,
    ReviewRequest,
    RoundsRequest,
    answer_status,
    document_line,
    progress,
    queue_heading,
    queue_line,
    read,
    round_line,
    row_shown,
    text_shown,
)

PAGE = 60

NO_ANSWERS = "no answers yet: s runs the first round, r all of them"


class CalibrateTab(LLMTab):
    NAME = "calibrate"
    TITLE = "Calibrate"
    ABOUT = "Why an answer is wrong, and whether another round corrects it. ✓ accepted, ✎ note."
    PANES = "#queue", "#case"
    TERMS = ("calibration", "uncertainty", "arm", "estimator", "AUROC", "log-probabilities")
    ACTIONS = (
        Action("calibrate.beside", "tab", "Topics", "Go to Topics", "", False, "list('topics')"),
        Action("calibrate.back", "escape", "Back", "Back to the queue, or stop the LLM calls"),
        Action("calibrate.step", "s", "Step", "Run the next round (shows the cost first)"),
        Action("calibrate.run", "r", "Run", "Run all rounds (shows the cost first)", "icl-curate calibrate query ID"),
        Action("calibrate.documents", "d", "Documents", "Go to the documents: those of the pool can be mended there"),
        Action("calibrate.accept", "a", "Accept", "Accept the answer of this round, or undo that"),
        Action("calibrate.note", "e", "Note", "Write a note on this query"),
        Action("calibrate.next", "n", "Next", "Next query without an accepted answer", call="open(1)"),
        Action("calibrate.previous", "N", "Previous", "Previous one", footer=False, call="open(-1)"),
        Action("calibrate.filter", "f", "Filter", "Filter: all, open, accepted, noted"),
        Action("calibrate.unsure", "S", "Unsure first", "Sort by uncertainty, or as indexed", footer=False),
        Action("calibrate.arm", "v", "Arm", "Next arm: the rounds, or what they are compared with", call="arm(1)"),
        Action("calibrate.arm_before", "V", "Arm before", "The arm before it", footer=False, call="arm(-1)"),
        Action("calibrate.prompt", "p", "Prompt", "Show or hide the prompt of the round"),
        Action("calibrate.all", "b", "Whole set", "Calibrate all queries as a job",
               "icl-curate calibrate --split validation"),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.model: CalibrateModel = CalibrateModel()
        self._writing = asyncio.Lock()
        self._asked: RoundsRequest | None = None
        """What the LLM is asked, or was."""
        self.queue = LineTable(
            QUEUE, id="queue", marked=lambda index: False, message="no such query", moved=lambda: self._soon()
        )
        self.documents = PoolTable(DOCUMENTS, self._document, id="documents", message="no documents")
        self.rounds = LineTable(ROUNDS, id="rounds", marked=lambda index: False, message=NO_ANSWERS)

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="progress"):
            yield Static(id="accepted-count")
            yield Static(id="by")
        yield Static(id="rounds-verdict")
        with Horizontal(id="calibrating"):
            yield self.queue
            with Vertical(id="case"):
                yield Static(id="calibrated-query")
                yield self.documents
                yield self.rounds
                yield Static(id="answer-status")
                yield Reader(id="text")

    def on_mount(self) -> None:
        self._soon = later(self, 0.12, self._look)

    @property
    def current(self) -> int | None:
        """The row of the query under the cursor."""
        return self.model.row(self.queue.cursor)

    def start(self) -> LineTable:
        return self.queue

    def remember(self) -> dict[str, Any]:
        return super().remember() | {"row": self.current if len(self.model.rows) else self.model.wanted_row}

    def copied(self) -> str:
        return self.model.copied(self.rounds.cursor)

    # The queue.

    def read(self, workspace: Workspace) -> tuple[CalibrateData, int] | Empty:
        written = self.model.written
        found = read(workspace, self.review.settings(), self.model.arm)
        return found if isinstance(found, Empty) else (found, written)

    def show(self, found: tuple[CalibrateData, int]) -> None:
        self.model.refresh(*found)
        self._arrange()

    def _arrange(self) -> None:
        """Apply filter and order to the queue."""
        data = self.model.found
        if data is None:
            return
        cursor = self.model.arrange(self.queue.cursor)
        self.queue.size_to(len(self.model.rows))
        self.queue.cursor = cursor
        self._page(max(0, cursor - PAGE), cursor + PAGE)
        self.query_one("#accepted-count", Static).update(progress(data))
        self.query_one("#by", Static).update(queue_heading(self.model, data))
        verdict = self.query_one("#rounds-verdict", Static)
        verdict.display = data.verdict is not None
        if data.verdict:
            verdict.update(Text(verdict_line(data.verdict, data.settings.llm), "muted"))
        self._soon()

    @on(LineTable.Wanted, "#queue")
    def _wanted(self, event: LineTable.Wanted) -> None:
        self._page(event.index, event.last)

    def _page(self, first: int, last: int) -> None:
        model, rows = self.model, self.model.rows

        def put(page: Sequence[Listed]) -> None:
            found = model.found
            if rows is model.rows and found is not None:
                lines = [queue_line(row, found.finals.get(row.row), found.reviews.get(row.row)) for row in page]
                self.queue.put(first, lines)

        def read() -> list[Listed]:
            workspace = self.review.opened()
            return listed(workspace, rows[first:last], pruned_rows(workspace))

        self.queue.promise(first, last)
        self.in_thread("page", read, put)

    def action_filter(self) -> None:
        self.model.next_filter()
        self._arrange()

    def action_unsure(self) -> None:
        self.model.unsure_first = not self.model.unsure_first
        self._arrange()

    def action_arm(self, by: int) -> None:
        self.stop()
        self.forget("case")
        self.model.next_arm(by)
        self._arrange()
        self.reload()

    def action_open(self, by: int) -> None:
        """Go to the next query without an accepted answer."""
        if self.current is None:
            return
        at = self.model.next_open(self.queue.cursor, by)
        if at is None:
            self.notify("all queries in the queue have an accepted answer")
        else:
            self.queue.cursor = at

    @on(LineTable.Chosen, "#queue")
    def _opened(self) -> None:
        self.add_class("-reading")
        stepped = self.model.stepped
        self.call_after_refresh((self.rounds if stepped and stepped.rounds else self.documents).focus)

    # One query.

    def _look(self) -> None:
        """Read the query under the cursor."""
        request = self.model.cached_rounds(self.current)
        if request is None:
            self.forget("case")
            self._show_case()
            return

        def take(seen: tuple[Query, SteppedQuery | None, UsageError | None]) -> None:
            final = self.model.take(*seen)
            self._show_case()
            if final is not None:
                self.rounds.cursor = final

        self.in_thread("case", lambda: request.read(self.review.opened(), self.review.session_cache()), take)

    def _show_case(self) -> None:
        query, stepped, review = self.model.query, self.model.stepped, self.model.review
        self.query_one("#calibrated-query", Static).update(texts.Question(query) if query else "")
        why_not = self.model.missing
        self.rounds.message = "no answers" if why_not else NO_ANSWERS
        self.documents.fill([document_line(one) for one in stepped.documents] if stepped else [])
        self.rounds.fill([round_line(one, stepped, review) for one in stepped.rounds] if stepped else [])
        self._show_status()
        self._show_text()

    def _show_status(self) -> None:
        """What is known of the query, or that it is being asked about."""
        status = answer_status(self.model) if self.model.query else Text()
        if self.asking and self._asked and self.is_shown(self._asked):
            status = Text(f"asking {display_line(self._asked.settings.llm, 30)} …", "accent")
            status.append("  escape stops it", "muted")
        self.query_one("#answer-status", Static).update(status)

    @on(LineTable.Chosen, "#documents")
    def _inspect(self) -> None:
        self.query_one("#text", Reader).focus()

    def action_documents(self) -> None:
        self.add_class("-reading")
        self.call_after_refresh(self.documents.focus)

    def _document(self, at: int) -> PoolRow | None:
        """The document in this line, if it is one of the pool and belongs to the query under the cursor."""
        return self.model.document_row(at) if self.model.shows(self.current) else None

    @on(LineTable.Moved, "#documents")
    @on(LineTable.Moved, "#rounds")
    def _show_text(self) -> None:
        """Show the prompt, or the document, and if that is a demonstration all that is known about it."""
        at = self.documents.cursor
        shown = text_shown(self.model, at, self.rounds.cursor)
        self.query_one("#text", Reader).read(shown)
        row = None if self.model.shows_prompt else self.model.document_row(at)
        if row is None:
            self.forget("detail")
            return

        def looked(seen: RowDetails | None) -> None:
            if seen is not None:
                self.query_one("#text", Reader).read(row_shown(self.model, at, seen))

        self.in_thread("detail", lambda: read_details(self.review.opened(), row.row), looked)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return (action == "back" and bool(self.asking)) or super().check_action(action, parameters)

    def action_back(self) -> None:
        self.stop()
        if self.query_one("#text", Reader).has_focus and self.documents.row_here():
            self.documents.focus()
            return
        self.remove_class("-reading")
        self.queue.focus()

    def action_prompt(self) -> None:
        self.model.shows_prompt = not self.model.shows_prompt
        self.set_class(self.model.shows_prompt, "-prompt")
        self._show_text()

    # Requests.

    def action_step(self) -> None:
        if self.model.all_done(self.current):
            rounds = self.model.last_round
            self.notify(f"all {rounds} rounds are done" if rounds else "the answer is known")
        else:
            self._ask(self.model.ask(self.current, all_rounds=False))

    def action_run(self) -> None:
        self._ask(self.model.ask(self.current, all_rounds=True))

    def _ask(self, request: RoundsRequest | None) -> None:
        if request is None:
            return

        def show_asking() -> None:
            self._asked = request
            self._show_status()

        def show_answer(stepped: SteppedQuery) -> None:
            if self.current == request.row and self.model.answered(request, stepped):
                self.forget("case")  # as it was before the answer
                self._show_case()
                self.rounds.cursor = len(stepped.rounds) - 1
            else:
                self._soon()  # its query may be read already, without the answer

        self.ask_llm(request, show_answer, show_asking)

    def is_shown(self, request: Any) -> bool:
        return bool(self.current == request.row and self.model.arm == request.arm)

    def ended(self) -> None:
        self._show_case()
        self._soon()

    def action_all(self) -> None:
        propose(self, ["calibrate --split validation"])

    # Reviews.

    def action_accept(self) -> None:
        request = self.model.accept(self.current, self.rounds.cursor)
        if request is None:
            self.notify("no answer to accept yet: s runs the first round")
        else:
            self._write(request)

    def action_note(self) -> None:
        row = self.current
        if row is None or self.model.found is None:
            return
        review = self.model.review_of(row)
        offer = Offer(text=review.note if review else "", told="empty deletes it")
        self.ask(Pick("Note on this query", offer, does="Keep"), lambda line: self._write(self.model.note(row, line)))

    def decided(self, change: Change) -> None:
        self.model.steps.decided(change.action == "undo")

    def undo_here(self) -> bool:
        request = self.model.undo()
        if request is not None:
            self._write(request)
        return request is not None

    def _write(self, request: ReviewRequest) -> None:
        """Store a review, after earlier ones."""
        assert self.model.found is not None
        llm = self.model.found.settings.llm

        def write() -> None:
            try:
                request.write(self.review.opened(), llm)
            finally:
                self.model.written += 1

        async def in_turn() -> None:
            async with self._writing:
                try:
                    await self.thread(write)
                except CurateError as error:
                    self.model.steps.not_saved(request)
                    self.app.notify(f"not saved: {error_text(error)}", severity="error")
                else:
                    self.notify(request.message)
                self.reload()

        self.in_worker(in_turn, "review")
