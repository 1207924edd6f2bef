"""State of the Calibrate tab: the queue, the current query with its rounds, reviews of answers. No Textual.

Keys become calls of `CalibrateModel`; what to read, ask or write is returned as an object that a thread executes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from rich.text import Text

from ....engine.base.arrays import Int64s
from ....engine.base.errors import UsageError
from ....engine.base.progress import CancelToken
from ....engine.llm.asking import price_of
from ....engine.llm.budget import Budget
from ....engine.llm.cost import Plan
from ....engine.llm.spec import is_stand_in
from ....engine.papers.calibrate.calibration import Calibration
from ....engine.papers.calibrate.results import RoundsVerdict, ScoredDocument, ScoredRound, SteppedQuery
from ....engine.papers.calibrate.round_runner import CalibrationPlan
from ....engine.papers.calibrate.rounds import ARMS
from ....engine.papers.calibrate.stored import Final, Review, finals, latest_verdict, reviews, save_review
from ....engine.pool.display import display_line
from ....engine.pool.records import Query
from ....engine.select.session import SessionCache
from ....engine.store.browse import Filter, Listed, matching
from ....engine.store.decisions import me
from ....engine.store.demonstrations import fetch
from ....engine.store.settings import Settings
from ....engine.store.workspace import Workspace
from ....render.columns import LineColumn
from ...model import Empty, PoolRow, TabModel, beside, is_command, missing
from ...widgets.demonstration import RowDetails, in_full
from ...widgets.lines import CUT, BarCell, Line, cut, stroke
from ..preview import rows

PLAN = CalibrationPlan()
FILTERS = ("all", "open", "accepted", "noted")


@dataclass(frozen=True, slots=True)
class CalibrateData:
    """The queue: rows in the order they were indexed, their final answers and reviews."""

    rows: Int64s
    finals: Mapping[int, Final]
    reviews: Mapping[int, Review]
    settings: Settings
    verdict: RoundsVerdict | None = None
    """On the rounds of this LLM, by its latest run over a set."""

    def is_accepted(self, row: int) -> bool:
        """Whether an answer to the query of this row was accepted."""
        return row in self.reviews and self.reviews[row].round is not None


def read(workspace: Workspace, settings: Settings, arm: str) -> CalibrateData | Empty:
    """The current queue, with the final answers of an arm."""
    rows = matching(workspace, Filter(split="validation"))
    if not rows.size:
        return Empty(
            "No queries to calibrate",
            "Here validation queries are answered in rounds, with scores of documents and answers.",
            "icl-curate index POOL.jsonl --validation QUERIES.jsonl",
        )
    llm = settings.llm
    found = finals(workspace, llm, arm), reviews(workspace, llm)
    return CalibrateData(rows, *found, settings, latest_verdict(workspace, llm))


@dataclass(frozen=True, slots=True)
class RoundsRequest:
    """The rounds of the query of ``row`` in an arm: what is cached of them, or the LLM's answers to the next one, or to
    ``all_rounds``. For threads."""

    row: int
    settings: Settings
    arm: str
    all_rounds: bool = False

    def read(self, workspace: Workspace, session: SessionCache) -> tuple[Query, SteppedQuery | None, UsageError | None]:
        """The query, its rounds as far as they are cached, and why none can be asked for."""
        with workspace.read():  # opened once for all of it
            query = fetch(workspace, [self.row])[0].as_query()
            if not session.may_look(self.settings):
                return query, None, None
            try:
                return query, self._ready(workspace, session, query=query).cached_rounds(), None
            except UsageError as error:
                return query, None, error

    def cost(self, workspace: Workspace, session: SessionCache) -> Plan:
        """The cost of asking; nothing is sent."""
        ready = self._ready(workspace, session)
        return ready.cost() if self.all_rounds else ready.cost_of_step()

    def ask(self, workspace: Workspace, session: SessionCache, cancel: CancelToken) -> SteppedQuery:
        """The state afterwards."""
        ready, budget = self._ready(workspace, session, cancel), Budget(price=price_of(self.settings))
        if not self.all_rounds:
            return ready.step(budget)
        ready.ask(budget)
        return ready.cached_rounds()

    def _ready(
        self, workspace: Workspace, session: SessionCache, cancel: CancelToken | None = None, query: Query | None = None
    ) -> Calibration:
        """A prepared calibration, or, without a token, one that only reads cached answers and estimates the cost."""
        llm, plan = session.client(workspace, self.settings, cancel), replace(PLAN, arms=(self.arm,))
        query = query or fetch(workspace, [self.row])[0].as_query()
        return Calibration.prepare(llm, [query], plan, selector=session.selector(workspace, self.settings))


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """A new review of the answers to the query of ``row`` (see `reviews.Review`), the ``message`` for the user, and
    what takes it back; None: it takes another one back."""

    row: int
    round: int | None
    answer: str
    note: str
    message: str
    back: ReviewRequest | None = field(default=None, compare=False)

    def write(self, workspace: Workspace, llm: str) -> None:
        """Store it. For threads."""
        save_review(workspace, llm, self.row, self.round, self.answer, self.note)


class Steps(list[ReviewRequest | None]):
    """What takes back each review of this session, the latest last; None: a decision on the pool."""

    def pop_review(self) -> ReviewRequest | None:
        """What takes back the latest review; None if there is none, or if a decision is later."""
        return self.pop() if self and self[-1] else None

    def decided(self, undone: bool) -> None:
        """A decision was made, or the latest one undone, in whatever tab."""
        if not undone:
            self.append(None)
        elif None in self:
            del self[-1 - self[::-1].index(None)]

    def not_saved(self, request: ReviewRequest) -> None:
        """It could not be stored, so what came before it is the latest."""
        if request.back is None:
            self.append(request)
        else:
            self[:] = [step for step in self if step is not request.back]


class CalibrateModel(TabModel):
    """The queue and the current query."""

    def __init__(self) -> None:
        self.found: CalibrateData | None = None
        self.rows: Int64s = np.empty(0, np.int64)
        """The filtered and sorted queue."""
        self.filter, self.unsure_first = "all", False
        self.arm = PLAN.arms[0]
        """Whose rounds are shown and asked for."""
        self.query: Query | None = None
        """The query whose rounds are shown."""
        self.stepped: SteppedQuery | None = None
        self.missing: UsageError | None = None
        """Why the query cannot be calibrated."""
        self.shows_prompt = False
        self.wanted_row: int | None = None
        """The query at which the last session ended."""
        self.steps = Steps()
        self.reviews_made = 0
        """Reviews made in this session; `written` of them were stored, or failed to be."""
        self.written = 0

    def remember(self) -> dict[str, Any]:
        """The state to restore in the next session; the tab adds its current row."""
        return {"filter": self.filter, "unsure_first": self.unsure_first, "arm": self.arm}

    def recall(self, stored: dict[str, Any]) -> None:
        """The stored state of the last session."""
        self.filter = stored["filter"] if stored.get("filter") in FILTERS else "all"
        self.unsure_first = stored.get("unsure_first") is True
        self.arm = stored["arm"] if stored.get("arm") in [*ARMS] else PLAN.arms[0]
        self.wanted_row = stored["row"] if isinstance(stored.get("row"), int) else None

    # The queue.

    def row(self, at: int) -> int | None:
        """The row of the query in line ``at``."""
        return int(self.rows[at]) if at < len(self.rows) else None

    def arrange(self, cursor: int) -> int:
        """Filter and sort the queue; returns the new line of the query that was at ``cursor``, or the old position."""
        data = self.found
        assert data is not None
        here = self.row(cursor) if len(self.rows) else self.wanted_row
        wanted: dict[str, Callable[[int], bool]] = {
            "all": lambda row: True,
            "open": lambda row: not data.is_accepted(row),
            "accepted": data.is_accepted,
            "noted": lambda row: row in data.reviews and bool(data.reviews[row].note),
        }
        rows = [row for row in data.rows.tolist() if wanted[self.filter](row)]
        if self.unsure_first:
            rows.sort(key=lambda row: -data.finals[row].uncertainty if row in data.finals else 1.0)
        self.rows = np.array(rows, np.int64)
        return rows.index(here) if here in rows else max(0, min(cursor, len(rows) - 1))

    def next_filter(self) -> None:
        """All, open, accepted, noted."""
        self.filter = beside(FILTERS, self.filter)

    def next_arm(self, by: int) -> None:
        """The arms in their order, round the end."""
        self.arm = beside(ARMS, self.arm, by)
        self.query = self.stepped = self.missing = None

    def next_open(self, cursor: int, by: int) -> int | None:
        """The line of the next query without an accepted answer."""
        count = len(self.rows)
        for step in range(1, count + 1):
            at = (cursor + by * step) % count
            if self.found and not self.found.is_accepted(int(self.rows[at])):
                return at
        return None

    # One query.

    def cached_rounds(self, row: int | None) -> RoundsRequest | None:
        """The request to read the query of this row; without a row, no query is shown."""
        if row is None or self.found is None:
            self.query = self.stepped = self.missing = None
            return None
        return RoundsRequest(row, self.found.settings, self.arm)

    def take(self, query: Query, stepped: SteppedQuery | None, missing: UsageError | None = None) -> int | None:
        """Set what was read of a query; returns the line of its final round if it is another query than before."""
        same = self.shows(query.row)
        self.query, self.stepped, self.missing = query, stepped, missing
        if same or stepped is None:
            return None
        return next((i for i, one in enumerate(stepped.rounds) if one.round == stepped.final_round), 0)

    def shows(self, row: int | None) -> bool:
        """Whether the rounds shown are those of the query of this row."""
        return self.query is not None and self.query.row == row

    @property
    def review(self) -> Review | None:
        """The review of the query shown."""
        return self.review_of(self.query.row) if self.query else None

    def review_of(self, row: int | None) -> Review | None:
        return self.found.reviews.get(row) if self.found and row is not None else None

    def document_row(self, at: int) -> PoolRow | None:
        """The document in line ``at`` as a row of the pool, if it is one."""
        documents = self.stepped.documents if self.stepped else ()
        if at >= len(documents) or (row := documents[at].row) is None:
            return None
        return PoolRow(row, documents[at].id, f"in review, a document of {self.query.id if self.query else ''}")

    def copied(self, at: int) -> str:
        """The prompt of the round in line ``at`` if it is shown, else the final answer, else the query; without rounds,
        what makes them possible."""
        stepped = self.stepped
        if stepped is None:
            return self.missing.fix if self.missing else ""
        if self.shows_prompt and stepped.prompts:
            messages = stepped.prompts[min(at, len(stepped.prompts) - 1)]
            return json.dumps([asdict(message) for message in messages], ensure_ascii=False, indent=1)
        return str(stepped.final or stepped.query)

    # Requests.

    @property
    def last_round(self) -> int:
        """The number of the arm's last round."""
        return 0 if ARMS[self.arm].critique else PLAN.rounds

    def all_done(self, row: int | None) -> bool:
        """Whether the query of this row is shown with all its rounds."""
        return self.shows(row) and self.stepped is not None and len(self.stepped.rounds) > self.last_round

    def ask(self, row: int | None, all_rounds: bool) -> RoundsRequest | None:
        """The request to the LLM for the query of this row."""
        found = self.found
        return RoundsRequest(row, found.settings, self.arm, all_rounds) if found and row is not None else None

    def answered(self, request: RoundsRequest, stepped: SteppedQuery) -> bool:
        """Rounds were answered; returns whether their query is still shown, in their arm."""
        if not self.shows(request.row) or self.arm != request.arm:
            return False
        self.stepped = stepped
        return True

    # Reviews.

    def accept(self, row: int | None, at: int) -> ReviewRequest | None:
        """Accept the answer of the round in line ``at``, or withdraw its acceptance; None without an answer."""
        if row is None or not self.shows(row) or self.stepped is None or not self.stepped.rounds:
            return None
        round_ = self.stepped.rounds[min(at, len(self.stepped.rounds) - 1)]
        review = self.review_of(row)
        note = review.note if review else ""
        if review and review.round == round_.round:
            return self._review(ReviewRequest(row, None, "", note, "acceptance removed"))
        message = f"accepted: {display_line(round_.answer, 60)}"
        return self._review(ReviewRequest(row, round_.round, round_.answer, note, message))

    def note(self, row: int, line: str) -> ReviewRequest:
        """A note on the query of this row; empty: remove it. Acceptance is not changed."""
        review = self.review_of(row)
        number, answer = (review.round, review.answer) if review else (None, "")
        return self._review(ReviewRequest(row, number, answer, line, "noted" if line else "note deleted"))

    def undo(self) -> ReviewRequest | None:
        """Undo the latest review of this session; None if there is none, or if a decision on the pool is later."""
        latest = self.steps.pop_review()
        return self._apply(latest) if latest else None

    def _review(self, request: ReviewRequest) -> ReviewRequest:
        before = self.review_of(request.row)
        number, answer, note = (before.round, before.answer, before.note) if before else (None, "", "")
        back = ReviewRequest(request.row, number, answer, note, "undid the latest review of an answer")
        self.steps.append(back)
        return self._apply(replace(request, back=back))

    def _apply(self, request: ReviewRequest) -> ReviewRequest:
        """It applies from now on: the next key may come before it is written."""
        assert self.found is not None
        now = {row: review for row, review in self.found.reviews.items() if row != request.row}
        if request.round is not None or request.note:
            moment = datetime.now(UTC).replace(tzinfo=None)
            now[request.row] = Review(request.row, request.round, request.answer, request.note, me(), moment)
        self.found = replace(self.found, reviews=now)
        self.reviews_made += 1
        return request

    def refresh(self, data: CalibrateData, written: int) -> None:
        """Set reviews read after ``written`` reviews were stored. Later reviews of this session take precedence over
        the file."""
        if self.found is not None and written < self.reviews_made:
            data = replace(data, reviews=self.found.reviews)
        self.found = data


QUEUE = (
    LineColumn("query", "query", 16, grow=3),
    LineColumn("answer", "final", 10, grow=1, most=20, rank=1),
    LineColumn("unsure", "unsure", 6, right=True, rank=2),
)
DOCUMENTS = (
    LineColumn("id", "", 6, most=16, grow=1, cut="start"),
    LineColumn("score", "score", 5, right=True),
    LineColumn("bar", "trusted", 8, rank=2, picture=True),
    LineColumn("alone", "answer from it alone", 12, grow=2, most=28),
    LineColumn("relevant", "", 8, rank=1),
    LineColumn("text", "document", 16, grow=6, rank=3),
)
ROUNDS = (
    LineColumn("round", "round", 5, right=True),
    LineColumn("score", "score", 5, right=True),
    LineColumn("bar", "sure", 8, rank=2, picture=True),
    LineColumn("uncertainty", "unsure", 6, right=True, rank=1),
    LineColumn("answer", "answer", 16, grow=4, most=48),
    LineColumn("state", "", 5),
)


def progress(data: CalibrateData) -> Text:
    """How many queries of the queue have an accepted answer."""
    accepted = sum(one.round is not None for one in data.reviews.values())
    noted = sum(bool(one.note) for one in data.reviews.values())
    text = Text.assemble((f"{accepted:,}", "title"), (f" of {data.rows.size:,} accepted ", "muted"))
    text.append_text(stroke(accepted / data.rows.size, 16, "good"))
    return text.append(f"  {noted:,} noted  {len(data.finals):,} done", "muted")


def queue_heading(model: CalibrateModel, found: CalibrateData) -> Text:
    """The filter and order of the queue, and the LLM."""
    llm = display_line(found.settings.llm, 30) + (", a stand-in" if is_stand_in(found.settings.llm) else "")
    order = ", unsure first" if model.unsure_first else ""
    return Text.assemble((f"{model.filter}{order}  ", "accent"), (llm, "muted"))


def queue_line(row: Listed, final: Final | None, review: Review | None) -> Line:
    sign = (" ", "")
    if review is not None:
        sign = ("✓", "good") if review.round is not None else ("✎", "accent")
    style = {True: "good", False: "bad", None: ""}[final.correct if final else None]
    answer = final.answer if final else review.answer if review else ""
    unsure = f"{final.uncertainty:.2f}" if final else ""
    return Line((display_line(row.input, CUT), Text(display_line(answer, CUT), style), unsure), sign=sign)


def document_line(document: ScoredDocument) -> Line:
    """A document, its trust and the answer from it alone."""
    score = document.score
    cells = (
        document.id, None if score is None else f"{score:.0f}",
        "" if score is None else BarCell(1.0 - score / 100.0, "primary"), display_line(document.answer or "", CUT),
        Text("relevant", "good") if document.relevant else Text(), Text(display_line(document.text, CUT), "muted"),
    )  # fmt: skip
    return Line(cells)


def round_line(round_: ScoredRound, stepped: SteppedQuery, review: Review | None) -> Line:
    """The answer of a round."""
    style = {True: "good", False: "bad", None: ""}[round_.correct]
    mark = {True: " ✓", False: " ✗", None: ""}[round_.correct]
    accepted = review is not None and review.round == round_.round and review.answer == round_.answer
    cells = (
        Text(str(round_.round)), f"{round_.score:.0f}", BarCell(1.0 - round_.uncertainty, "primary"),
        round_.uncertainty, Text(display_line(round_.answer, CUT) + mark, style),
        Text("final" if round_.round == stepped.final_round else "", "accent"),
    )  # fmt: skip
    return Line(cells, sign=("✓", "good") if accepted else (" ", ""))


FINAL = {"surest": "the surest of {}", "second": "the usual end without scores", "vote": "of the majority of {}"}
"""Why a round is the final one, by `Arm.final`, of so many rounds."""


def answer_status(model: CalibrateModel) -> Text:
    """The arm, its final answer, or why there can be none, the accepted one, and the note."""
    stepped, review, why_not, arm = model.stepped, model.review, model.missing, ARMS[model.arm]
    line = Text.assemble(("arm  ", "muted"), (model.arm, "title"), (f"  {arm.about}\n", "muted"))
    for part in missing(why_not).splitlines() if why_not else ():
        line.append(f"{part}\n", "accent" if is_command(part) else "muted")
    if stepped and stepped.failure:
        line.append(display_line(stepped.failure, CUT), "bad")
    elif stepped and stepped.final is not None:
        count = len(stepped.rounds)
        left = model.last_round + 1 - count
        line.append("final  ", "muted").append(display_line(stepped.final, 80), "title")
        what = "from the document judged best" if arm.critique else f"round {stepped.final_round}, {FINAL[arm.final]}"
        line.append(f"  {what.format(count)}", "muted")
        line.append(f"; {left} more to ask" if left else "", "muted")
    if review and review.round is not None:
        who = f" by {display_line(review.who, 20)}, {review.reviewed_at:%Y-%m-%d %H:%M}"
        line.append("\n✓ accepted  ", "good").append(display_line(review.answer, 80)).append(who, "muted")
    if review and review.note:
        line.append("\n✎ ", "accent").append(display_line(review.note, CUT))
    return line


def row_shown(model: CalibrateModel, at: int, seen: RowDetails) -> Text:
    """The document in line ``at``, which is a demonstration, with all that is known about it."""
    documents = model.stepped.documents if model.stepped else ()
    head = _document_head(documents[at]).append("\n\n") if at < len(documents) else Text()
    return head.append_text(in_full(seen))


def _document_head(document: ScoredDocument) -> Text:
    text = Text.assemble(("document ", "primary"), (display_line(document.id, 40), "title"))
    if document.answer is not None:
        text.append("  alone it answers ", "muted").append(display_line(document.answer, 80))
        if document.uncertainty is not None:
            text.append(f"  unsure {document.uncertainty:.3f}", "muted")
    return text


def text_shown(model: CalibrateModel, document: int, round_: int) -> Text:
    """The text shown in full: the prompt of the round in a line, or the document in a line."""
    stepped = model.stepped
    if stepped is None:
        return Text()
    if model.shows_prompt and stepped.prompts:
        at = min(round_, len(stepped.prompts) - 1)
        text = Text.assemble(("the exact prompt of round ", "primary"), (str(stepped.rounds[at].round), "title"))
        text.append(f"  by {display_line(stepped.written_by, 60)}", "accent").append("  y copies it", "muted")
        return rows.turns(text, stepped.prompts[at])
    if stepped.documents:
        shown = stepped.documents[min(document, len(stepped.documents) - 1)]
        return _document_head(shown).append("\n\n").append_text(cut(shown.text))
    return Text()
