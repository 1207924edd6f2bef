"""Tables of demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual.binding import BindingType

from ...render.columns import LineColumn
from ..actions import Action, bindings
from ..model import PoolRow
from ..row_keys import RowKeys, row_actions
from .lines import Line
from .table import LineTable


class RowTable(LineTable, inherit_bindings=False):
    """A table whose lines are demonstrations."""

    TITLE = "Demonstrations"
    ACTIONS = (
        Action("row.read", "enter", "Inspect", "Show the whole demonstration", call="choose"),
        *(action for action in LineTable.ACTIONS if action.name != "table.choose"),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)


class PoolTable(RowTable, RowKeys, inherit_bindings=False):
    """Demonstrations that can be pruned and relabelled here: the keys act on the line under the cursor while the table
    is focused."""

    ABOUT = "The demonstration under the cursor."
    ACTIONS = (*row_actions("row"), *RowTable.ACTIONS)
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(
        self,
        columns: Sequence[LineColumn],
        pick: Callable[[int], PoolRow | None],
        decided: Callable[[], None] = lambda: None,
        **more: Any,
    ) -> None:
        """``pick``: the row in a line; None if it is no row of the pool. ``decided`` is called after
        a decision."""
        super().__init__(columns, **more)
        self._pick, self._decided = pick, decided
        self._offered = False

    def row_here(self) -> PoolRow | None:
        return self._pick(self.cursor) if self.count else None

    def row_decided(self) -> None:
        self._decided()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.offers(action)

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
