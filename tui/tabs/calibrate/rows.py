"""Texts of the Calibrate tab: lines of its queue, documents and rounds, the final answer, prompts."""

from __future__ import annotations

from rich.text import Text

from ....engine.base.errors import CurateError
from ....engine.llm.spec import is_stand_in
from ....engine.papers.calibrate.results import ScoredDocument, ScoredRound, SteppedQuery
from ....engine.papers.calibrate.stored import Final, Review
from ....engine.pool.display import display_line
from ....engine.store.demonstrations import Listed
from ....render.columns import LineColumn
from ...model import is_command, missing
from ...widgets.demonstration import RowDetails, in_full
from ...widgets.lines import BarCell, Line, stroke
from ..preview import rows
from .model import CalibrateData, CalibrateModel

CUT = 300
"""Maximum characters of a text in a table."""

QUEUE = (
    LineColumn("query", "query", 16, grow=3, sortable=False),
    LineColumn("answer", "final", 10, grow=1, most=20, rank=1, sortable=False),
    LineColumn("unsure", "unsure", 6, right=True, rank=2, sortable=False),
)
DOCUMENTS = (
    LineColumn("id", "", 6, most=16, grow=1, sortable=False, cut="start"),
    LineColumn("score", "score", 5, right=True, sortable=False),
    LineColumn("bar", "trusted", 8, rank=2, sortable=False, picture=True),
    LineColumn("alone", "answer from it alone", 12, grow=2, most=28, sortable=False),
    LineColumn("relevant", "", 8, rank=1, sortable=False),
    LineColumn("text", "document", 16, grow=6, rank=3, sortable=False),
)
ROUNDS = (
    LineColumn("round", "round", 5, right=True, sortable=False),
    LineColumn("score", "score", 5, right=True, sortable=False),
    LineColumn("bar", "sure", 8, rank=2, sortable=False, picture=True),
    LineColumn("uncertainty", "unsure", 6, right=True, rank=1, sortable=False),
    LineColumn("answer", "answer", 16, grow=4, most=48, sortable=False),
    LineColumn("state", "", 5, sortable=False),
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
    """A line of the queue."""
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


def answer_status(
    stepped: SteppedQuery | None, review: Review | None, rounds: int, why_not: CurateError | None = None
) -> Text:
    """The final answer, or why there can be none, the accepted one, and the note."""
    line = Text()
    for part in missing(why_not).splitlines() if why_not else ():
        line.append(f"{part}\n", "accent" if is_command(part) else "muted")
    if stepped and stepped.failure:
        line.append(display_line(stepped.failure, CUT), "bad")
    elif stepped and stepped.final is not None:
        left = rounds + 1 - len(stepped.rounds)
        line.append("final  ", "muted").append(display_line(stepped.final, 80), "title")
        line.append(f"  round {stepped.final_round}, the surest of {len(stepped.rounds)}", "muted")
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
        return rows.turns(text.append("  y copies it", "muted"), stepped.prompts[at])
    if stepped.documents:
        shown = stepped.documents[min(document, len(stepped.documents) - 1)]
        return _document_head(shown).append("\n\n").append_text(rows.cut(shown.text))
    return Text()
