"""One half of the comparison: a method, its demonstrations with their scores, and the LLM's answer to them."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from ...model import missing
from ...widgets.rowtable import RowTable
from .model import MethodSelection, Side
from .rows import answer_line, method_line, shot_columns, shot_lines


class SideView(Vertical):
    """Draws a `Side`."""

    def __init__(self, place: int) -> None:
        super().__init__(id=f"side-{place}", classes="side")

    def compose(self) -> ComposeResult:
        yield Static(classes="method")
        yield RowTable(())
        yield Static(classes="answer")

    @property
    def table(self) -> RowTable:
        return self.query_one(RowTable)

    def head(self, side: Side) -> None:
        """Update only the line above: the activity has changed, the selection has not."""
        self.query_one(".method", Static).update(method_line(side))

    def show(self, side: Side, other: MethodSelection | None, llm: str) -> None:
        """Show the side; ``other`` is the one beside it."""
        self.head(side)
        table, answer, chosen = self.table, self.query_one(".answer", Static), side.chosen
        if chosen is None or chosen.seen is None:
            table.message = missing(chosen.error) if chosen and chosen.error else "no selection"
            table.arrange_columns(())
            table.fill([])
            answer.update("")
            return
        table.message = "no demonstrations: zero-shot"
        columns = shot_columns(chosen, other)
        table.arrange_columns(columns)
        table.fill(shot_lines(chosen, other, columns))
        answer.update(answer_line(chosen.answered, llm))
