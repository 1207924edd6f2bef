"""Preview: the demonstrations of a query under two methods, why they were selected, and the LLM's answers."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import RenderableType
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static

from ....engine.base.errors import CurateError, UsageError
from ....engine.pool.display import display_line
from ....engine.pool.records import Query
from ....engine.select.stability import Stability
from ....engine.store.workspace import Workspace
from ...actions import Action
from ...dialogs.dialog import Offer, Option, Pick
from ...model import Empty, PoolRow, missing
from ...row_keys import RowKeys, RowTable, row_actions
from ...tab import LLMTab
from ...widgets.demonstration import read_details
from ...widgets.field import Field
from ...widgets.reader import Detail, Reader
from ...widgets.table import LineTable
from ...workers import at_rest, later
from . import rows as texts
from .model import (
    MOST_LISTED,
    PANES,
    MethodSelection,
    PreviewData,
    PreviewModel,
    PromptRequest,
    Side,
    read,
    settings_of_template,
    template_options,
)
from .rows import answer_line, method_line, shot_columns, shot_lines, which_query

TALL = ((45, 4), (22, 3), (16, 2), (0, 1))
"""By the least height of the screen, lines for each demonstration."""


class SideView(Vertical):
    """Draws a `Side`."""

    def __init__(self, place: int) -> None:
        super().__init__(id=f"side-{place}", classes="side")
        self.table = RowTable(())

    def compose(self) -> ComposeResult:
        yield Static(classes="method")
        yield self.table
        yield Static(classes="answer")

    def on_resize(self) -> None:
        height = self.app.size.height
        self.table.grow_to(next(tall for least, tall in TALL if height >= least))

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


class PreviewTab(LLMTab, RowKeys):
    NAME = "preview"
    TITLE = "Preview"
    ABOUT = "Which demonstrations a query gets, why, and how the LLM answers."
    TERMS = ("query", "k", "candidates", "preselection", "redundancy", "coverage", "stability", "scored, generated")
    PANES = "#sides", "#reasons"
    ACTIONS = (
        Action("preview.back", "escape", "Back", "Back to the demonstrations, or stop the LLM calls"),
        *row_actions("preview"),
        Action("preview.type", "slash", "Type", "Type a query", 'icl-curate preview "QUERY"'),
        Action("preview.pick", "v", "Pick", "Pick a validation query"),
        Action("preview.next", "n", "Next", "Next validation query", call="step(1)"),
        Action("preview.previous", "N", "Previous", "Previous validation query", footer=False, call="step(-1)"),
        Action("preview.method", "m", "Method", "Choose another method", "icl-curate preview QUERY --method M"),
        Action("preview.template", "T", "Template", "Choose how prompts are written", "icl-curate template list",
               footer=False),
        Action("preview.left", "h,left", "Left", "Go to the left side", footer=False, call="side(0)"),
        Action("preview.right", "l,right", "Right", "Go to the right side", footer=False, call="side(1)"),
        Action("preview.more", "plus,equals_sign", "More shots", "One shot more", footer=False, call="shots(1)"),
        Action("preview.fewer", "minus", "Fewer shots", "One shot fewer", footer=False, call="shots(-1)"),
        Action("preview.ask", "a", "Ask", "Ask the LLM (shows the cost first)", "icl-curate preview QUERY --answer"),
        Action("preview.stability", "t", "Stability", "Ask without each demonstration and in reversed order"),
        Action("preview.prompt", "p", "Prompt", "Show or hide the exact prompt", call="pane('prompt')"),
        Action("preview.read", "d", "Demonstration", "Show or hide the whole demonstration", call="pane('shot')"),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.model: PreviewModel = PreviewModel()

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="querybar"):
            yield Field(placeholder="/ type a query", compact=True, id="query")
            yield Static(id="which")
        yield Static(id="question")
        with Horizontal(id="sides"):
            yield SideView(0)
            yield SideView(1)
        with Horizontal(id="reasons"):
            yield Reader(id="why")
            yield Detail()
            yield Reader(id="more")

    def on_mount(self) -> None:
        self._typed_soon = later(self, 0.2, lambda: self._select(same=True))
        self._look_soon = at_rest(self, 0.06, self._look)
        self._pane(self.model.pane)

    def side(self, place: int | None = None) -> SideView:
        """One of the two sides; by default the current one."""
        return self.query_one(f"#side-{self.model.active if place is None else place}", SideView)

    def start(self) -> LineTable:
        return self.side().table

    def read(self, workspace: Workspace) -> PreviewData | Empty:
        return read(workspace, self.review.settings())

    def show(self, found: PreviewData) -> None:
        first = self.model.found is None
        anew = self.model.take(found)
        if first:
            self.query_one("#query", Input).value = self.model.typed
        if anew:
            self._select(same=True)

    def command(self) -> str:
        method = self.model.methods[self.model.active]
        return f"icl-curate preview {quote(self.model.typed)} --method {method}" if self.model.typed else ""

    def copied(self) -> str:
        return self.model.copied(self.side().table.cursor)

    # The query.

    def show_query(self, row: int) -> None:
        """For other tabs: show the validation query of this row."""
        self.model.want_row(row)
        if self.model.found:
            self._select_wanted()

    def action_type(self) -> None:
        self.query_one("#query", Input).focus()

    @on(Input.Changed, "#query")
    def _edited(self, event: Input.Changed) -> None:
        if self.model.type_query(event.value):
            self.forget("select")  # for what was typed before
            self._typed_soon()

    def action_step(self, by: int) -> None:
        if self.model.step(by):
            self._select_wanted()
        else:
            self.notify("no validation queries: press / to type one", severity="warning")

    def action_pick(self) -> None:
        model, state = self.model, self.model.found
        if state is None or not model.queries:
            self.action_step(0)
            return

        def listed() -> Offer:
            rows = state.listed_queries(self.review.opened())
            return Offer([Option(row.input, display_line(row.output, 30), value=at) for at, row in enumerate(rows)])

        def taken(at: int) -> None:
            model.want_place(at)
            self._select_wanted()

        more = f" (the first {MOST_LISTED:,} of {model.queries:,})" if model.queries > MOST_LISTED else ""
        self.ask(Pick(f"Validation query{more}", more=listed, now=model.place), taken)

    def _select_wanted(self) -> None:
        """Select for a query that was not typed."""
        self.query_one("#query", Input).value = self.model.typed
        self._select()

    # Selecting.

    def action_method(self) -> None:
        model = self.model

        def taken(name: str) -> None:
            model.methods[model.active] = name
            self._select()

        side = "left" if model.active == 0 else "right"
        options = [Option(*option) for option in model.method_options()]
        self.ask(Pick(f"Method on the {side}", Offer(options), now=model.methods[model.active]), taken)

    def action_template(self) -> None:
        model = self.model
        if model.found is None:
            return
        options = [Option(*option) for option in template_options([Path(), self.review.opened().path])]

        def taken(name: str) -> None:
            try:
                model.template = settings_of_template(model.settings, name)
            except UsageError as error:
                self.failed("template", error)
                return
            model.pane = "prompt"
            self._pane(model.pane)
            self._select()

        self.ask(Pick("Template", Offer(options), now=model.settings.template), taken)

    def action_side(self, place: int) -> None:
        self.side(place).table.focus()

    def action_shots(self, by: int) -> None:
        if self.model.found:
            self.model.set_shots(by)
            self._select()

    @on(events.DescendantFocus)
    def _looked_at(self, event: events.DescendantFocus) -> None:
        for place in (0, 1):
            if event.widget is self.side(place).table:
                self.model.active = place
                self.set_class(place == 1, "-second")
                self._explain()

    def _select(self, same: bool = False) -> None:
        """Select for the query with both methods, in a thread; no LLM is called. ``same``: for the query of before, or
        the one that was typed."""
        request = self.model.select(same)
        if request is None:
            if self.model.found:
                self._show_query()
                self.ended()
            return
        self._show_heads()

        def selected(done: tuple[Query, Sequence[MethodSelection]]) -> None:
            postponed = self.model.selected(*done)
            self._show_query()
            self._show_sides()
            self.release()
            self._ask(postponed)

        review = self.review
        self.in_thread("select", lambda: request.select(review.opened(), review.session_cache()), selected)

    def _show_query(self) -> None:
        self.query_one("#which", Static).update(which_query(self.model))
        query, typed = self.model.query, bool(self.model.typed.strip())
        lines = lambda: 1 if self.screen.has_class("-short") else 3  # noqa: E731
        question = self.query_one("#question", Static)
        question.update(texts.Question(query, typed, lines) if query else "")
        question.set_class(query is None or (typed and not query.answers), "-empty")

    def _show_heads(self) -> None:
        for place, side in enumerate(self.model.sides):
            self.side(place).head(side)

    def _show_sides(self) -> None:
        left, right = self.model.sides
        llm = self.model.settings.llm
        for place, (side, other) in enumerate(((left, right), (right, left))):
            if side.chosen:
                self.side(place).show(side, other.chosen, llm)
        self._explain()
        self.refresh_bindings()  # there may be a demonstration to act on now

    # Reasons.

    @on(LineTable.Moved)
    def _moved(self, event: LineTable.Moved) -> None:
        if event.table is self.side().table:
            self._explain()

    @on(LineTable.Chosen)
    def _opened(self) -> None:
        if self.model.pane == "why":
            self._pane("shot")
        self.call_after_refresh(self._reader.focus)

    def action_pane(self, name: str) -> None:
        """Show it, or hide it if it is shown."""
        self._pane("why" if self.model.pane == name else name)

    def _pane(self, name: str) -> None:
        """The content beside the reasons, or in their place if there is no space for both."""
        self.model.pane = name
        for pane in PANES:
            self.set_class(pane == name, f"-{pane}")
        self._explain()
        self.call_after_refresh(self._refocus)

    def _refocus(self) -> None:
        """If the focused widget was hidden for lack of space, focus its replacement."""
        if self.screen.focused is None and self.display:
            (self._reader if self.model.pane != "why" else self.start()).focus()

    @property
    def _reader(self) -> Reader:
        return self.query_one(Detail) if self.model.pane == "shot" else self.query_one("#more", Reader)

    def _explain(self) -> None:
        chosen, at = self.model.side.chosen, self.side().table.cursor
        why: RenderableType = Text()
        more: RenderableType = Text()
        if chosen and chosen.seen and chosen.prompt:
            none = Text("no demonstrations")
            why = texts.why(chosen.seen, at) if self.model.shot(at) else none
            if self.model.pane == "stability":
                more = texts.stability(chosen.answered, len(chosen.shots), self.model.settings.llm)
            else:
                other = self.model.sides[1 - self.model.active].chosen
                reply = chosen.answered.whole if chosen.answered else None
                more = texts.prompt(chosen.prompt, reply, other.prompt if other else None)
        self.query_one("#why", Reader).read(why)
        self.query_one("#more", Reader).read(more)
        self._look_soon()

    def _look(self) -> None:
        """Show the demonstration under the cursor in full, with its ledger entry."""
        shot, data = self.model.shot(self.side().table.cursor), self.model.found
        if shot is None or data is None:
            self.forget("detail")
            self.query_one(Detail).show_row(None)
            return
        row, known = shot.row, data.ledger.get(shot.row)
        look = lambda: read_details(self.review.opened(), row, known, data.grading)  # noqa: E731
        self.in_thread("detail", look, self.query_one(Detail).show_row)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "back":
            return bool(self.asking) or self.model.pane != "why" or not isinstance(self.screen.focused, LineTable)
        return self.offers(action) and super().check_action(action, parameters)

    def action_back(self) -> None:
        self.stop()
        self._pane("why")
        self.start().focus()

    # The LLM.

    def action_ask(self) -> None:
        self._ask(self.model.ask([0, 1], variants=False))

    def action_stability(self) -> None:
        self._pane("stability")
        if self.model.nothing_to_leave_out():
            self.notify("no demonstration to leave out")
        else:
            self._ask(self.model.ask_stability())

    def _ask(self, request: PromptRequest | None) -> None:
        """Ask, showing the cost first, and display the answers."""
        if request is None:
            return

        def begun() -> None:
            self.model.asking(request)
            self._show_heads()

        def answered(answers: Sequence[Stability]) -> None:
            for warning in self.model.answered(request, answers):
                self.notify(warning, severity="warning")
            self._show_sides()

        self.ask_llm(request, answered, begun)

    def is_shown(self, request: Any) -> bool:
        now = (self.model.sides[i].chosen for i in request.sides)
        return not self.model.selecting and all(map(is_, now, request.chosen))

    def failed(self, kind: str, error: CurateError) -> None:
        super().failed(kind, error)
        if kind == "select":
            self.model.stop_selecting()
            self.ended()

    def ended(self) -> None:
        self.model.ended()
        self._show_heads()

    # Decisions.

    def row_here(self) -> PoolRow | None:
        shot, query = self.model.shot(self.side().table.cursor), self.model.query
        reason = "in review, preview" + (f" of {query.id}" if query is not None and query.id else "")
        return PoolRow(shot.row, shot.id, reason, self.model.selecting) if shot else None
