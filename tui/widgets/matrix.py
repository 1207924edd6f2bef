"""A confusion matrix: true labels below each other, answers side by side, and a cursor on one cell."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from string import ascii_letters

from rich.text import Text
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from ...engine.evaluate.figures import Confusion, ConfusionMatrix
from ...engine.pool.display import display_line
from ..actions import Acting, Action

MOST_NAME, LEAST_NAME = 24, 8
"""Widths of names in cells."""


class Matrix(Acting, Widget, can_focus=True, inherit_bindings=False):
    """Draws as many labels as fit, those of the largest confusions; columns are named by the letters of the labels."""

    TITLE = "Confusion matrix"
    ACTIONS = (
        Action("matrix.down", "j,down", "Down", "Next true label", footer=False, call="move(1, 0)"),
        Action("matrix.up", "k,up", "Up", "Previous true label", footer=False, call="move(-1, 0)"),
        Action("matrix.left", "h,left", "Left", "Previous answer", footer=False, call="move(0, -1)"),
        Action("matrix.right", "l,right", "Right", "Next answer", footer=False, call="move(0, 1)"),
        Action("matrix.choose", "enter", "Its queries", "Show the queries of the cell"),
    )

    at: reactive[tuple[int, int]] = reactive((0, 0))
    """Row and column of the current cell."""

    class Moved(Message):
        """Another cell is the current one, or another matrix is shown."""

    class Chosen(Message):
        """Enter, or a click on the current cell."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Confusion | None = None
        self._drawn: ConfusionMatrix | None = None

    def draw(self, found: Confusion) -> None:
        """Show another confusion, at its largest cell."""
        self.found, self._drawn = found, None
        self._arrange()

    @property
    def current(self) -> tuple[str, str | None] | None:
        """True label and answer of the current cell; None for the column of labels that are not shown."""
        matrix = self._drawn
        if matrix is None or not matrix.wanted:
            return None
        row, column = self.at
        if column == len(matrix.labels) and matrix.hidden:
            return None
        return matrix.wanted[row], matrix.labels[column] if column < len(matrix.labels) else None

    # The cursor.

    def validate_at(self, at: tuple[int, int]) -> tuple[int, int]:
        matrix = self._drawn
        if matrix is None or not matrix.wanted:
            return 0, 0
        row, column = at
        return max(0, min(row, len(matrix.wanted) - 1)), max(0, min(column, len(self._heads(matrix)) - 1))

    def watch_at(self) -> None:
        self.post_message(self.Moved())

    def action_move(self, down: int, right: int) -> None:
        self.at = self.at[0] + down, self.at[1] + right

    def action_choose(self) -> None:
        self.post_message(self.Chosen())

    def on_click(self, event: events.Click) -> None:
        matrix = self._drawn
        if matrix is None or not 1 <= event.y <= len(matrix.wanted):
            return
        name, width = self._widths()
        ends = list(accumulate(_wide(head, width) for head in self._heads(matrix)))
        here = self.validate_at((event.y - 1, bisect_right(ends, event.x - name - 3)))
        if here == self.at:
            self.action_choose()
        self.at = here

    # Drawing.

    def on_resize(self) -> None:
        self._arrange()

    def render(self) -> Text:
        matrix = self._drawn
        if matrix is None:
            return Text()
        if not matrix.wanted:
            return Text(" no answers", "muted")
        name, width = self._widths()
        heads = [
            (head.rjust(_wide(head, width)), "accent" if i == self.at[1] else "muted")
            for i, head in enumerate(self._heads(matrix))
        ]
        lines = [Text.assemble(" " * (name + 3), *heads, ("     of", "muted"))]
        lines += [self._line(matrix, i, name, width) for i in range(len(matrix.wanted))]
        if matrix.hidden:
            lines.append(Text(f" {matrix.hidden:,} more labels are confused less", "muted"))
        return Text("\n").join(lines)

    def _line(self, matrix: ConfusionMatrix, row: int, name: int, width: int) -> Text:
        here = row == self.at[0]
        wanted = matrix.wanted[row]
        right = matrix.labels.index(wanted)
        label = Text(display_line(wanted), "bold" if here else "", no_wrap=True)
        label.truncate(name, overflow="ellipsis", pad=True)
        line = Text.assemble((f"{ascii_letters[right]} ", "accent" if here else "muted"), label, " ")
        for column, (head, count) in enumerate(zip(self._heads(matrix), self._shown(matrix, row), strict=True)):
            text = Text(f"{count:,}" if count else "·", "muted" if not count else "good" if column == right else "bad")
            if here and column == self.at[1]:
                text.stylize("reverse" if self.has_focus else "underline")
            line.append(" " * (_wide(head, width) - len(text))).append_text(text)
        return line.append(f"{sum(matrix.counts[row]):7,}", "muted")

    def _heads(self, matrix: ConfusionMatrix) -> list[str]:
        letters = list(ascii_letters[: len(matrix.labels)])
        return [*letters, *(["other"] if matrix.hidden else []), "none"]

    def _shown(self, matrix: ConfusionMatrix, row: int) -> list[int]:
        *counts, other, none = matrix.counts[row]
        return [*counts, *([other] if matrix.hidden else []), none]

    def _widths(self) -> tuple[int, int]:
        """Of the names and of a column."""
        assert self.found is not None
        longest = max((len(display_line(label)) for label in self.found.labels), default=LEAST_NAME)
        most = max((cell.count for cell in self.found.cells), default=0)
        return min(longest, MOST_NAME, max(LEAST_NAME, self.size.width // 4)), max(3, len(f"{most:,}") + 1)

    def _arrange(self) -> None:
        """Choose as many labels as fit; the cursor stays on its cell, or goes to the largest."""
        if self.found is None or not self.size:
            return
        here = self.current or next(((cell.wanted, cell.answer) for cell in self.found.cells), None)
        name, width = self._widths()
        room = (self.size.width - name - 3 - _wide("other", width) - _wide("none", width) - 7) // width
        matrix = self._drawn = self.found.matrix(max(2, min(room, len(ascii_letters))), max(2, self.size.height - 2))
        if here is not None and here[0] in matrix.wanted:
            column = len(self._heads(matrix)) - 1 if here[1] is None else matrix.column(here[1])
            self.at = matrix.wanted.index(here[0]), column
        else:
            self.at = 0, 0
        self.refresh()
        self.post_message(self.Moved())


def _wide(head: str, width: int) -> int:
    return max(width, len(head) + 1)
