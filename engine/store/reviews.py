"""Reviews of calibrated answers: an accepted answer, a note, or both; append-only, the latest review applies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from .decisions import me
from .workspace import Workspace


@dataclass(frozen=True, slots=True)
class Review:
    """The latest review of a query's answers by one LLM. ``round`` is that of the accepted answer, None if none is
    accepted."""

    query: int
    round: int | None
    answer: str
    note: str
    who: str
    reviewed_at: datetime


def save_review(workspace: Workspace, llm: str, query: int, round: int | None, answer: str, note: str) -> None:
    """Add a review of the answers of ``llm`` (a spec) to the query of this row. Without answer and note it withdraws
    the earlier ones."""
    with workspace.write() as con:
        con.execute(
            """
            INSERT INTO calibration_reviews
            SELECT coalesce(max(seq), 0) + 1, $moment, $who, $llm, $query, $round, $answer, $note
              FROM calibration_reviews
            """,
            {
                "moment": datetime.now(UTC).replace(tzinfo=None),
                "who": me(),
                "llm": llm,
                "query": query,
                "round": round,
                "answer": answer,
                "note": note,
            },
        )


def reviews(workspace: Workspace, llm: str) -> dict[int, Review]:
    """Current reviews by query row, without withdrawn ones."""
    with workspace.read() as con:
        rows = con.execute(
            """
            SELECT query, round, answer, note, who, reviewed_at FROM calibration_reviews WHERE llm = ?
            QUALIFY row_number() OVER (PARTITION BY query ORDER BY seq DESC) = 1
            """,
            [llm],
        ).fetchall()
    found = [Review(*row) for row in rows]
    return {one.query: one for one in found if one.round is not None or one.note}
