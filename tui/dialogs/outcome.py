"""One query of an evaluation in full: the reference, the answers, the demonstrations shown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from ...engine.pool.display import display_line, display_text
from ...engine.pool.records import Demonstration
from ...engine.store.runs import QueryOutcome
from ..actions import Action, bindings

MOST = 6_000
"""Maximum characters displayed of the query; a demonstration gets a tenth."""


class OutcomeDialog(ModalScreen[None]):
    """Shows an `QueryOutcome`; ``shown`` are its demonstrations, best first, without those that no longer exist."""

    ACTIONS = (
        Action("outcome.close", "escape,q,enter", "Close", "Back to the queries"),
        Action("outcome.down", "j,down", "", "Scroll down", footer=False, call="scroll(1)"),
        Action("outcome.up", "k,up", "", "Scroll up", footer=False, call="scroll(-1)"),
        Action("outcome.page_down", "ctrl+d,pagedown", "", "Page down", footer=False, call="scroll(10)"),
        Action("outcome.page_up", "ctrl+u,pageup", "", "Page up", footer=False, call="scroll(-10)"),
    )
    BINDINGS = bindings(ACTIONS)

    def __init__(self, outcome: QueryOutcome, method: str, other: str | None, shown: Sequence[Demonstration]) -> None:
        super().__init__()
        self._text = _text(outcome, method, other, shown)

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog outcome"):
            yield Static(self._text, id="outcome")
            yield Static(Text("esc closes", "muted"), classes="keys")

    def action_close(self) -> None:
        self.dismiss()

    def action_scroll(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)


def _text(outcome: QueryOutcome, method: str, other: str | None, shown: Sequence[Demonstration]) -> Text:
    text = Text.assemble((display_line(outcome.id, 80), "title"), "\n\n", display_text(outcome.input[:MOST]))
    if len(outcome.input) > MOST:
        text.append(f"\n… {len(outcome.input) - MOST:,} more characters", "warn")
    text.append("\n\nwanted  ", "primary").append(display_line(outcome.wanted, 600))
    _answer(text, method, outcome.answer, outcome.failure, outcome.right)
    if outcome.uncertainty is not None:
        text.append(f"  uncertainty {outcome.uncertainty:.3f}", "muted")
    if other is not None and outcome.other_right is not None:
        _answer(text, other, outcome.other_answer, "no answer", outcome.other_right)
    text.append(f"\n\nshown by {display_line(method)}, best first\n", "primary")
    for i, shot in enumerate(shown, 1):
        text.append(f"\n{i} ", "accent").append(display_line(f"{shot.source} {shot.id}", 80), "muted")
        text.append(f"\n  {display_line(shot.input, MOST // 10)}\n  → ")
        text.append(display_line(shot.output, MOST // 10), "good" if shot.output == outcome.wanted else "")
    if not shown:
        text.append("\nno demonstrations", "muted")
    return text


def _answer(text: Text, method: str, answer: str | None, failure: str, right: float) -> None:
    text.append(f"\n{display_line(method)}  ", "primary")
    text.append(display_line(answer if answer is not None else failure, 600), "good" if right == 1 else "bad")
    if 0 < right < 1:
        text.append(f"  right under {right:.0%} of the seeds", "warn")
