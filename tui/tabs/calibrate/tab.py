"""Calibrate: a queue of validation queries, their documents and answers with scores, round by round."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from ....engine.arrays import Int64s
from ....engine.calibrate.calibration import Calibration
from ....engine.calibrate.results import SteppedQuery
from ....engine.calibrate.round_runner import CalibrationPlan
from ....engine.llm.asking import price_of
from ....engine.llm.budget import Budget
from ....engine.llm.planning import Plan
from ....engine.llm.spec import is_stand_in
from ....engine.pool.display import display_line
from ....engine.pool.records import Query
from ....engine.progress import CancelToken
from ....engine.settings import Settings
from ....engine.store.browse import listed, matching, pruned_rows
from ....engine.store.decisions import me
from ....engine.store.demonstrations import Filter, Listed, fetch, workspace_fingerprint
from ....engine.store.reviews import Review, review, reviews
from ....engine.store.rounds import Final, finals
from ....engine.store.workspace import Workspace
from ...actions import Action, bindings
from ...dialogs.note import Note
from ...dialogs.start import propose
from ...llm_prompting import LLMTab
from ...tab import Empty
from ...widgets.lines import stroke
from ...widgets.reader import Reader
from ...widgets.table import LineTable
from ...workers import later
from ..preview import reasons
from .rows import (
    DOCUMENTS,
    QUEUE,
    ROUNDS,
    document_in_full,
    document_line,
    prompt_of_round,
    queued,
    round_line,
    stands,
)

PLAN = CalibrationPlan()
FILTERS = ("all", "open", "accepted", "noted")
PAGE = 60


@dataclass(frozen=True, slots=True)
class Found:
    """The queue: rows in the order they were indexed, what stood at the end of rounds and what was said of it."""

    rows: Int64s
    finals: Mapping[int, Final]
    reviews: Mapping[int, Review]
    settings: Settings
    fingerprint: tuple[object, ...]


class CalibrateTab(LLMTab):
    NAME = "calibrate"
    TITLE = "Calibrate"
    ABOUT = "Why an answer is wrong, and whether another round corrects it. ✓ accepted, ✎ note."
    ACTIONS = (
        Action("calibrate.back", "escape", "Back", "Back to the queue, or stop the LLM calls"),
        Action("calibrate.step", "s", "Step", "Run the next round (shows the cost first)"),
        Action("calibrate.run", "r", "Run", "Run all rounds (shows the cost first)", "icl-curate calibrate ID"),
        Action("calibrate.accept", "a", "Accept", "Accept the answer of this round, or undo that"),
        Action("calibrate.note", "e", "Note", "Write a note on this query"),
        Action("calibrate.next", "n", "Next", "Next query without an accepted answer", call="open(1)"),
        Action("calibrate.previous", "N", "Previous", "Previous one", footer=False, call="open(-1)"),
        Action("calibrate.filter", "f", "Filter", "Filter: all, open, accepted, noted"),
        Action("calibrate.unsure", "S", "Unsure first", "Sort by uncertainty, or as indexed", footer=False),
        Action("calibrate.prompt", "p", "Prompt", "Show or hide the prompt of the round"),
        Action(
            "calibrate.all", "b", "Whole set", "Calibrate all queries as a job", "icl-curate calibrate --validation"
        ),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self) -> None:
        super().__init__()
        self.found: Found | None = None
        self.rows: Int64s = np.empty(0, np.int64)
        """Of the queue as it is filtered and ordered."""
        self.filter, self.unsure_first = "all", False
        self.told: SteppedQuery | None = None
        self.case: Query | None = None
        self._row: int | None = None
        self._prompt = False
        self._of: tuple[object, ...] = ()
        self._said: list[tuple[int, Review | None]] = []
        """What stood on a query before each word on it in this session, the latest last."""

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="progress"):
            yield Static(id="walked")
            yield Static(id="by")
        with Horizontal(id="calibrating"):
            yield LineTable(QUEUE, id="queue", marked=lambda index: False)
            with Vertical(id="case"):
                yield Static(id="asked-for")
                yield LineTable(DOCUMENTS, id="documents")
                yield LineTable(ROUNDS, id="rounds", marked=lambda index: False)
                yield Static(id="stands")
                yield Reader(id="text")

    def on_mount(self) -> None:
        self._soon = later(self, 0.12, self._look)
        self.query_one("#queue", LineTable).message = "no such query"
        self.query_one("#documents", LineTable).message = "no documents"

    @property
    def queue(self) -> LineTable:
        return self.query_one("#queue", LineTable)

    @property
    def rounds(self) -> LineTable:
        return self.query_one("#rounds", LineTable)

    @property
    def current(self) -> int | None:
        """The row of the query under the cursor."""
        return int(self.rows[self.queue.cursor]) if len(self.rows) else None

    def start(self) -> LineTable:
        return self.queue

    # The queue.

    def read(self, workspace: Workspace) -> Found | Empty:
        rows = matching(workspace, Filter(split="validation"))
        settings = self.review.settings()
        if not rows.size:
            return Empty(
                "No queries to calibrate",
                "Here validation queries are answered in rounds, with scores of documents and answers.",
                "icl-curate index POOL.jsonl --validation QUERIES.jsonl",
            )
        return Found(
            rows,
            finals(workspace, settings.llm),
            reviews(workspace, settings.llm),
            settings,
            workspace_fingerprint(workspace),
        )

    def show(self, found: Found) -> None:
        self.found = found
        self._arrange()

    def remember(self) -> dict[str, Any]:
        return {"row": self.current, "filter": self.filter, "unsure_first": self.unsure_first}

    def recall(self, said: dict[str, Any]) -> None:
        self.filter = said["filter"] if said.get("filter") in FILTERS else "all"
        self.unsure_first = said.get("unsure_first") is True
        self._row = said["row"] if isinstance(said.get("row"), int) else None

    def _arrange(self) -> None:
        """Filter and order the queue; the cursor stays on its query, or where that was."""
        found = self.found
        if found is None:
            return
        here, at = self.current if len(self.rows) else self._row, self.queue.cursor
        wanted: dict[str, Callable[[int], bool]] = {
            "all": lambda row: True,
            "open": lambda row: row not in found.reviews or found.reviews[row].round is None,
            "accepted": lambda row: row in found.reviews and found.reviews[row].round is not None,
            "noted": lambda row: row in found.reviews and bool(found.reviews[row].note),
        }
        rows = [row for row in found.rows.tolist() if wanted[self.filter](row)]
        if self.unsure_first:
            rows.sort(key=lambda row: -found.finals[row].uncertainty if row in found.finals else 1.0)
        self.rows = np.array(rows, np.int64)
        self.queue.size_to(len(rows))
        self.queue.cursor = rows.index(here) if here in rows else at
        self._page(max(0, self.queue.cursor - PAGE), self.queue.cursor + PAGE)
        self._tell()
        self._soon()

    @on(LineTable.Wanted, "#queue")
    def _wanted(self, event: LineTable.Wanted) -> None:
        self._page(event.index, event.last)

    def _page(self, first: int, last: int) -> None:
        rows, found = self.rows, self.found
        if found is None:
            return

        def put(page: Sequence[Listed]) -> None:
            if rows is self.rows and self.found is not None:
                self.queue.put(
                    first,
                    [queued(row, self.found.finals.get(row.row), self.found.reviews.get(row.row)) for row in page],
                )

        def read() -> list[Listed]:
            workspace = self.review.opened()
            return listed(workspace, rows[first:last], pruned_rows(workspace))

        self.in_thread("page", read, put)

    def _tell(self) -> None:
        found = self.found
        if found is None:
            return
        accepted = sum(one.round is not None for one in found.reviews.values())
        noted = sum(bool(one.note) for one in found.reviews.values())
        told = Text.assemble((f"{accepted:,}", "title"), (f" of {found.rows.size:,} accepted ", "muted"))
        told.append_text(stroke(accepted / found.rows.size, 16, "good"))
        told.append(f"  {noted:,} noted  {len(found.finals):,} done", "muted")
        self.query_one("#walked", Static).update(told)
        llm = display_line(found.settings.llm, 30) + (", a stand-in" if is_stand_in(found.settings.llm) else "")
        order = ", unsure first" if self.unsure_first else ""
        self.query_one("#by", Static).update(
            Text.assemble((f"{self.filter}{order}  ", "accent"), (llm, "muted"))
        )  # fmt: skip

    def action_filter(self) -> None:
        self.filter = FILTERS[(FILTERS.index(self.filter) + 1) % len(FILTERS)]
        self._arrange()

    def action_unsure(self) -> None:
        self.unsure_first = not self.unsure_first
        self._arrange()

    def action_open(self, by: int) -> None:
        """To the next query that waits for an answer to be accepted."""
        found = self.found
        if found is None or not len(self.rows):
            return
        count = len(self.rows)
        for step in range(1, count + 1):
            at = (self.queue.cursor + by * step) % count
            said = found.reviews.get(int(self.rows[at]))
            if said is None or said.round is None:
                self.queue.cursor = at
                return
        self.notify("all queries in the queue have an accepted answer")

    @on(LineTable.Moved, "#queue")
    def _moved(self) -> None:
        self._soon()

    @on(LineTable.Chosen, "#queue")
    def _opened(self) -> None:
        self.add_class("-reading")
        table = self.rounds if self.told and self.told.rounds else self.query_one("#documents", LineTable)
        self.call_after_refresh(table.focus)

    # One query.

    def _calibration(self, row: int, settings: Settings, cancel: CancelToken | None = None) -> Calibration:
        """In a thread: made ready to ask, or, without a token, to look at what is known and what asking would cost."""
        workspace, session_cache = self.review.opened(), self.review.session_cache()
        query = fetch(workspace, [row])[0].as_query()
        llm = session_cache.client(workspace, settings, cancel)
        return Calibration(llm, [query], PLAN, selector=session_cache.selector(workspace, settings))

    def _look(self) -> None:
        """What is known of the query under the cursor."""
        row, found = self.current, self.found
        if row is None or found is None:
            self.case = self.told = None
            self._show_case()
            return
        may_look = self.review.session_cache().may_look(found.settings)

        def read() -> tuple[Query, SteppedQuery | None]:
            query = fetch(self.review.opened(), [row])[0].as_query()
            return query, self._calibration(row, found.settings).look() if may_look else None

        self.in_thread("case", read, lambda seen: self._looked(*seen))

    def _looked(self, query: Query, told: SteppedQuery | None) -> None:
        same = self.case is not None and self.case.row == query.row
        self.case, self.told = query, told
        self._show_case()
        if not same and told:
            self.rounds.cursor = next(
                (i for i, round_ in enumerate(told.rounds) if round_.round == told.final_round), 0
            )

    def _show_case(self) -> None:
        query, told, found = self.case, self.told, self.found
        if query is None or found is None:
            self.query_one("#asked-for", Static).update(Text())
            for name in ("#documents", "#rounds"):
                self.query_one(name, LineTable).fill([])
            self.query_one("#stands", Static).update(Text())
            self.query_one("#text", Reader).read(Text())
            return
        self.query_one("#asked-for", Static).update(reasons.question(query))
        said = found.reviews.get(query.row if query.row is not None else -1)
        self.query_one("#documents", LineTable).fill([document_line(one) for one in told.documents] if told else [])
        self.rounds.message = "no answers yet: s runs the first round, r all of them"
        self.rounds.fill([round_line(round_, told, said) for round_ in told.rounds] if told else [])
        self.query_one("#stands", Static).update(stands(told, said, PLAN.rounds))
        self._show_text()

    @on(LineTable.Moved, "#documents")
    @on(LineTable.Moved, "#rounds")
    def _pointed(self) -> None:
        self._show_text()

    def _show_text(self) -> None:
        told, reader = self.told, self.query_one("#text", Reader)
        documents = self.query_one("#documents", LineTable)
        if told is None:
            reader.read(Text())
        elif self._prompt and told.prompts:
            at = min(self.rounds.cursor, len(told.prompts) - 1)
            reader.read(prompt_of_round(told.rounds[at].round, told.prompts[at]))
        elif told.documents:
            reader.read(document_in_full(told.documents[min(documents.cursor, len(told.documents) - 1)]))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "back":
            return bool(self.asking) or self.screen.focused is not self.queue
        return super().check_action(action, parameters)

    def action_back(self) -> None:
        self.stop()
        self.remove_class("-reading")
        self.queue.focus()

    def action_prompt(self) -> None:
        self._prompt = not self._prompt
        self.set_class(self._prompt, "-prompt")
        self._show_text()

    def copied(self) -> str:
        told = self.told
        if told is None:
            return ""
        if self._prompt and told.prompts:
            messages = told.prompts[min(self.rounds.cursor, len(told.prompts) - 1)]
            return json.dumps([asdict(message) for message in messages], ensure_ascii=False, indent=1)
        return str(told.final or told.query)

    # Asking.

    @property
    def _shown(self) -> bool:
        """Show the query under the cursor."""
        return self.case is not None and self.case.row == self.current

    def action_step(self) -> None:
        if self._shown and self.told and len(self.told.rounds) > PLAN.rounds:
            self.notify(f"all {PLAN.rounds} rounds are done")
            return
        self._ask(Calibration.cost_of_step, lambda ready, budget: ready.step(budget))

    def action_run(self) -> None:
        def run(ready: Calibration, budget: Budget) -> SteppedQuery:
            ready.run(budget)
            return ready.look()

        self._ask(Calibration.cost, run)

    def _ask(self, cost: Callable[[Calibration], Plan], work: Callable[[Calibration, Budget], SteppedQuery]) -> None:
        row, found = self.current, self.found
        if row is None or found is None:
            return
        settings = found.settings

        def begun() -> None:
            self.query_one("#stands", Static).update(
                Text.assemble((f"asking {display_line(settings.llm, 30)} …", "accent"), ("  escape stops it", "muted"))
            )

        def came(told: SteppedQuery) -> None:
            if self._shown and self.current == row:
                self.told = told
                self._show_case()
                self.rounds.cursor = len(told.rounds) - 1

        self.ask_llm(
            settings,
            lambda: cost(self._calibration(row, settings)),
            lambda cancel: work(self._calibration(row, settings, cancel), Budget(price=price_of(settings))),
            came,
            begun,
        )

    def ended(self) -> None:
        self._show_case()
        self._soon()

    def action_all(self) -> None:
        propose(self, ["calibrate --validation"])

    # What people say of it.

    def action_accept(self) -> None:
        row, told, found = self.current, self.told if self._shown else None, self.found
        if row is None or found is None or told is None or not told.rounds:
            self.notify("no answer to accept yet: s runs the first round")
            return
        round_ = told.rounds[min(self.rounds.cursor, len(told.rounds) - 1)]
        said = found.reviews.get(row)
        note = said.note if said else ""
        if said and said.round == round_.round:
            self._say(row, None, "", note, "acceptance removed")
        else:
            self._say(
                row,
                round_.round,
                round_.answer,
                note,
                f"accepted: {display_line(round_.answer, 60)}",
            )

    def action_note(self) -> None:
        row, found = self.current, self.found
        if row is None or found is None:
            return
        said = found.reviews.get(row)

        def noted(line: str | None) -> None:
            if line is not None:
                kept = (said.round, said.answer) if said else (None, "")
                self._say(row, *kept, line, "noted" if line else "note deleted")

        self.app.push_screen(Note("Note on this query", said.note if said else ""), noted)

    def undo_here(self) -> bool:
        if not self._said:
            return False
        row, before = self._said.pop()
        stood = (before.round, before.answer, before.note) if before else (None, "", "")
        self._put_down(row, *stood, "undid the latest review of an answer")
        return True

    def _say(self, row: int, number: int | None, answer: str, note: str, told: str) -> None:
        assert self.found is not None
        self._said.append((row, self.found.reviews.get(row)))
        self._put_down(row, number, answer, note, told)

    def _put_down(self, row: int, number: int | None, answer: str, note: str, told: str) -> None:
        assert self.found is not None
        llm = self.found.settings.llm
        now = {key: said for key, said in self.found.reviews.items() if key != row}
        if number is not None or note:
            now[row] = Review(row, number, answer, note, me(), datetime.now(UTC).replace(tzinfo=None))
        self.found = replace(self.found, reviews=now)  # the next key may come before it is written

        def done(_: None) -> None:
            self.notify(told, markup=False, timeout=3)
            self.reload()

        self.in_turn("say", lambda: review(self.review.opened(), llm, row, number, answer, note), done)
