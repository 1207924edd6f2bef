"""Preview: which demonstrations a query gets under two methods, why, and what the LLM makes of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from rich.console import RenderableType
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Static

from ....engine.arrays import Int64s
from ....engine.errors import CurateError
from ....engine.llm.asking import price_of
from ....engine.llm.budget import Budget
from ....engine.pool.display import display_line
from ....engine.pool.records import Query
from ....engine.progress import CancelToken
from ....engine.ranker.ledger import LedgerEntry, ledger
from ....engine.retrieval.view import PoolView
from ....engine.select.methods import METHODS
from ....engine.select.preview import preview
from ....engine.select.selector import Selector
from ....engine.select.stability import QueryShots, Stability, StabilityCheck
from ....engine.settings import Settings
from ....engine.store import runs
from ....engine.store.browse import listed, matching, pruned_rows
from ....engine.store.demonstrations import Filter, active_rows, fetch, workspace_fingerprint
from ....engine.store.workspace import Workspace
from ...actions import Action, bindings
from ...dialogs.choose import Choose
from ...llm_prompting import LLMTab
from ...tab import Empty
from ...widgets.detail import Detail, look_up
from ...widgets.field import Field
from ...widgets.reader import Reader
from ...widgets.side import Chosen, Side
from ...widgets.table import LineTable
from ...workers import later
from . import reasons

TRAINED = {"train-ranker": "ranker", "train-promptpg": "promptpg", "train-topics": "topick"}
"""Methods that a finished run of a kind makes available."""

PANES = ("why", "shot", "prompt", "stability")
"""What the lower half shows beside the reasons."""

MOST_LISTED = 5_000
"""Validation queries that can be picked from a list; the others are reached one by one."""

MOST_SHOTS = 64


@dataclass(frozen=True, slots=True)
class FoundRows:
    """What selections depend on: the workspace's fingerprint, the settings, trained methods, validation rows."""

    fingerprint: tuple[object, ...]
    settings: Settings
    trained: frozenset[str]
    validation: Int64s
    ledger: Mapping[int, LedgerEntry]


class PreviewTab(LLMTab):
    NAME = "preview"
    TITLE = "Preview"
    ABOUT = "Which demonstrations a query gets, why, and how the LLM answers."
    ACTIONS = (
        Action("preview.back", "escape", "Back", "Back to the demonstrations, or stop the LLM calls"),
        Action("preview.type", "slash", "Type", "Type a query", 'icl-curate preview "QUERY"'),
        Action("preview.pick", "v", "Pick", "Pick a validation query"),
        Action("preview.next", "n", "Next", "Next validation query", call="step(1)"),
        Action("preview.previous", "N", "Previous", "Previous validation query", footer=False, call="step(-1)"),
        Action("preview.method", "m", "Method", "Choose another method", "icl-curate preview QUERY --method M"),
        Action("preview.left", "h,left", "Left", "Go to the left side", footer=False, call="side(0)"),
        Action("preview.right", "l,right", "Right", "Go to the right side", footer=False, call="side(1)"),
        Action("preview.more", "plus,equals_sign", "More shots", "One shot more", footer=False, call="shots(1)"),
        Action("preview.fewer", "minus", "Fewer shots", "One shot fewer", footer=False, call="shots(-1)"),
        Action("preview.ask", "a", "Ask", "Ask the LLM (shows the cost first)", "icl-curate preview QUERY --answer"),
        Action("preview.stability", "t", "Stability", "Ask without each demonstration and in reversed order"),
        Action("preview.prompt", "p", "Prompt", "Show or hide the exact prompt", call="pane('prompt')"),
        Action("preview.read", "d", "Demonstration", "Show or hide the whole demonstration", call="pane('shot')"),
        Action("preview.prune", "x", "Prune", "Prune the demonstration", "icl-curate prune --demo ID"),
    )  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self) -> None:
        super().__init__()
        self.found: FoundRows | None = None
        self.query_asked: Query | None = None
        self.place = 0
        """Of the validation query; it counts while nothing is typed."""
        self.typed = ""
        self.methods = ["", ""]
        self.shots: int | None = None
        """Shots where they are not those of the settings."""
        self.active = 0
        """The side looked at."""
        self.shown_pane = "why"
        self._row: int | None = None
        self._selecting = False
        self._afterwards: Callable[[], None] | None = None
        """What was asked for while a selection was under way."""

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="querybar"):
            yield Field(placeholder="/ type a query", compact=True, id="query")
            yield Static(id="which")
        yield Static(id="question")
        with Horizontal(id="sides"):
            yield Side(0)
            yield Side(1)
        with Horizontal(id="reasons"):
            yield Reader(id="why")
            yield Detail()
            yield Reader(id="more")

    def on_mount(self) -> None:
        self._typed_soon = later(self, 0.2, self._select)
        self._look_soon = later(self, 0.06, self._look)
        self._pane(self.shown_pane)

    def side(self, place: int | None = None) -> Side:
        """One of the two; by default the one looked at."""
        return self.query_one(f"#side-{self.active if place is None else place}", Side)

    def start(self) -> LineTable:
        return self.side().table

    @property
    def settings(self) -> Settings:
        """Those of the workspace with the shots set here."""
        assert self.found is not None
        found = self.found.settings
        return found if self.shots is None else replace(found, k=self.shots)

    # What is shown.

    def read(self, workspace: Workspace) -> FoundRows | Empty:
        if not active_rows(workspace).size:
            return Empty(
                "The active pool is empty",
                "Here you see which demonstrations a query gets and why.",
                "icl-curate index POOL.jsonl",
            )
        done = {run.kind for run in runs.runs(workspace, None, 500) if run.status == "done"}
        trained = frozenset(name for kind, name in TRAINED.items() if kind in done)
        return FoundRows(
            workspace_fingerprint(workspace),
            self.review.settings(),
            trained,
            matching(workspace, Filter(split="validation")),
            {s.row: s for s in ledger(workspace)},
        )

    def show(self, found: FoundRows) -> None:
        before, self.found = self.found, found
        if before is None:
            self._begin(found)
        same = before and (before.fingerprint, before.settings, before.trained) == (
            found.fingerprint, found.settings, found.trained,
        )  # fmt: skip
        if not same:
            self._select()

    def _begin(self, found: FoundRows) -> None:
        """Methods and query for the first time."""
        usual = [found.settings.method, *(m for m in ("topick", "ranker") if m in found.trained), "bm25", "dense"]
        usual = [name for name in dict.fromkeys(usual) if name in METHODS]
        for i, name in enumerate(self.methods):
            if not name:
                self.methods[i] = next(method for method in usual if method not in self.methods)
        at = np.flatnonzero(found.validation == self._row)
        self.place = int(at[0]) if at.size else 0
        self.query_one("#query", Input).value = self.typed

    def remember(self) -> dict[str, Any]:
        row = int(self.found.validation[self.place]) if self.found and self.found.validation.size else self._row
        return {"methods": self.methods, "shots": self.shots, "row": row, "typed": self.typed, "pane": self.shown_pane}

    def recall(self, said: dict[str, Any]) -> None:
        methods = said.get("methods")
        if isinstance(methods, list) and len(methods) == 2:
            self.methods = [name if name in METHODS else "" for name in map(str, methods)]
        shots, row = said.get("shots"), said.get("row")
        self.shots = shots if isinstance(shots, int) and 0 <= shots <= MOST_SHOTS else None
        self._row = row if isinstance(row, int) else None
        self.typed = str(said.get("typed", ""))
        self.shown_pane = said["pane"] if said.get("pane") in PANES else "why"

    def copied(self) -> str:
        chosen = self.side().chosen
        if chosen is None or chosen.seen is None:
            return ""
        if self.shown_pane == "prompt":
            return json.dumps(
                [asdict(message) for message in chosen.seen.prompt.messages], ensure_ascii=False, indent=1
            )
        at = self.side().current
        if at is None:
            return chosen.seen.query.input
        shot = chosen.shots[at]
        fields = {"id": shot.id, "input": shot.input, "output": shot.output, "source": shot.source}
        return json.dumps(fields, ensure_ascii=False)

    def show_query(self, row: int) -> None:
        """As another tab asks for it: the validation query of this row."""
        self._row, self.typed = row, ""
        if self.found:
            self._begin(self.found)
            self._select()

    # The query.

    def action_type(self) -> None:
        self.query_one("#query", Input).focus()

    @on(Input.Changed, "#query")
    def _edited(self, event: Input.Changed) -> None:
        if event.value.strip() != self.typed.strip():
            self.typed = event.value
            self._typed_soon()
        self.typed = event.value

    @on(Input.Submitted, "#query")
    def _submitted(self) -> None:
        self.start().focus()

    def action_step(self, by: int) -> None:
        if self.found and self.found.validation.size:
            self._take(0 if self.typed else (self.place + by) % self.found.validation.size)
        else:
            self.notify("no validation queries: press / to type one", severity="warning")

    def action_pick(self) -> None:
        found = self.found
        if found is None or not found.validation.size:
            self.action_step(0)
            return
        rows = found.validation[:MOST_LISTED]

        def read() -> list[tuple[str, str]]:
            workspace = self.review.opened()
            return [
                (display_line(row.input), display_line(row.output, 30))
                for row in listed(workspace, rows, pruned_rows(workspace))
            ]

        def open_list(options: list[tuple[str, str]]) -> None:
            more = (
                f" (the first {MOST_LISTED:,} of {found.validation.size:,})"
                if found.validation.size > MOST_LISTED
                else ""
            )
            self.app.push_screen(Choose(f"Validation query{more}", options, min(self.place, len(options) - 1)), taken)

        def taken(at: int | None) -> None:
            if at is not None:
                self._take(at)

        self.in_thread("list", read, open_list)

    def _take(self, place: int) -> None:
        self.place, self.typed = place, ""
        self.query_one("#query", Input).value = ""
        self._select()

    # Selecting.

    def action_method(self) -> None:
        names = list(METHODS)
        trained = self.found.trained if self.found else frozenset()

        def taken(at: int | None) -> None:
            if at is not None:
                self.methods[self.active] = names[at]
                self._select()

        options = [
            (name, METHODS[name].about if not METHODS[name].trained or name in trained else "not trained yet")
            for name in names
        ]
        side = "left" if self.active == 0 else "right"
        self.app.push_screen(Choose(f"Method on the {side}", options, names.index(self.methods[self.active])), taken)

    def action_side(self, place: int) -> None:
        self.side(place).table.focus()

    def action_shots(self, by: int) -> None:
        if self.found:
            self.shots = max(0, min(self.settings.k + by, MOST_SHOTS))
            self._select()

    @on(events.DescendantFocus)
    def _looked_at(self, event: events.DescendantFocus) -> None:
        for place in (0, 1):
            if event.widget is self.side(place).table:
                self.active = place
                self.set_class(place == 1, "-second")
                self._explain()

    def _select(self) -> None:
        """Select for the query under both methods, in a thread; no LLM is asked."""
        found, typed = self.found, self.typed.strip()
        if found is None:
            return
        if not typed and not found.validation.size:
            self._tell_which()
            return
        settings, methods, place, with_answers = (
            self.settings,
            tuple(self.methods),
            self.place,
            self.review.session_cache().may_look(self.settings),
        )
        self._selecting, self._afterwards = True, None
        for i, method in enumerate(methods):
            self.side(i).head(method, "selecting …")

        def work() -> tuple[Query, list[Chosen]]:
            workspace = self.review.opened()
            query = Query(typed) if typed else fetch(workspace, [int(found.validation[place])])[0].as_query()
            view = self.review.session_cache().view(workspace, settings)
            return query, [self._chosen(view, query, replace(settings, method=m), with_answers) for m in methods]

        self.in_thread("select", work, lambda done: self._selected(*done))

    def _chosen(self, view: PoolView, query: Query, settings: Settings, with_answers: bool) -> Chosen:
        """In a thread: one method's selection, or why there is none."""
        workspace = view.workspace
        try:
            selector = Selector(workspace, settings=settings, view=view)
            started = time.monotonic()
            seen = preview(workspace, query, settings, selector=selector)
            took = time.monotonic() - started
        except CurateError as error:
            return Chosen(None, error=error)
        answered = None
        if with_answers:
            try:
                shown = QueryShots(query, tuple(shot.demonstration for shot in seen.shots))
                llm = self.review.session_cache().client(workspace, settings)
                [answered] = StabilityCheck(llm, selector.task, [shown]).known()
            except CurateError:  # what was never asked is simply not known
                answered = None
        return Chosen(seen, took, answered)

    def _selected(self, query: Query, chosen: Sequence[Chosen]) -> None:
        self.query_asked, self._selecting = query, False
        self._tell_which()
        for i in (0, 1):
            self.side(i).tell(chosen[i], chosen[1 - i], self.settings.llm)
        self._explain()
        if self._afterwards is not None:
            self._afterwards()

    def _tell_which(self) -> None:
        count = int(self.found.validation.size) if self.found else 0
        line = Text.assemble((f"{self.settings.k} shots  " if self.found else "", "muted"))
        if self.typed.strip():
            line.append("typed", "accent")
        elif count:
            line.append("validation ", "muted").append(f"{self.place + 1:,}", "accent").append(
                f" of {count:,}", "muted"
            )
        else:
            line.append("no validation queries: type one", "warn")
        self.query_one("#which", Static).update(line)
        self.query_one("#question", Static).update(reasons.question(self.query_asked) if self.query_asked else Text())

    # Reasons.

    @on(LineTable.Moved)
    def _moved(self, event: LineTable.Moved) -> None:
        if event.table is self.side().table:
            self._explain()

    @on(LineTable.Chosen)
    def _opened(self) -> None:
        if self.shown_pane == "why":
            self._pane("shot")
        self.call_after_refresh(self._reader.focus)

    def action_pane(self, name: str) -> None:
        """Show it, or go back where it is shown."""
        self._pane("why" if self.shown_pane == name else name)

    def _pane(self, name: str) -> None:
        """What stands beside the reasons, or in their place where there is no room for both."""
        self.shown_pane = name
        for pane in PANES:
            self.set_class(pane == name, f"-{pane}")
        self._explain()
        self.call_after_refresh(self._refocus)

    def _refocus(self) -> None:
        """Where there was no room for what had the focus, what came in its place has it."""
        if self.screen.focused is None and self.display:
            (self._reader if self.shown_pane != "why" else self.start()).focus()

    @property
    def _reader(self) -> Reader:
        return self.query_one(Detail) if self.shown_pane == "shot" else self.query_one("#more", Reader)

    def _explain(self) -> None:
        chosen, at = self.side().chosen, self.side().current
        seen = chosen.seen if chosen else None
        none = Text("no demonstrations" if seen else "")
        self.query_one("#why", Reader).read(reasons.why(seen, at) if seen and at is not None else none)
        more: RenderableType = none
        if chosen and seen and self.shown_pane == "stability":
            more = reasons.stability(chosen.answered, len(seen.shots), self.settings.llm)
        elif chosen and seen:
            more = reasons.prompt(chosen.answered.whole.prompt if chosen.answered else seen.prompt)
        self.query_one("#more", Reader).read(more)
        self._look_soon()

    def _look(self) -> None:
        """The demonstration under the cursor in full, with what training saw it do."""
        chosen, at, found = self.side().chosen, self.side().current, self.found
        if chosen is None or at is None or found is None:
            self.forget("detail")
            self.query_one(Detail).tell(None)
            return
        row = chosen.shots[at].row
        look = lambda: look_up(self.review.opened(), row, found.ledger.get(row))  # noqa: E731
        self.in_thread("detail", look, self.query_one(Detail).tell)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "back":
            beside = self.shown_pane != "why" or not isinstance(self.screen.focused, LineTable)
            return bool(self.asking) or beside
        return super().check_action(action, parameters)

    def action_back(self) -> None:
        self.stop()
        self._pane("why")
        self.start().focus()

    # The LLM.

    def action_ask(self) -> None:
        self._inquire([0, 1], variants=False)

    def action_stability(self) -> None:
        self._pane("stability")
        chosen = None if self._selecting else self.side().chosen
        if chosen and chosen.seen and not chosen.shots:
            self.notify("no demonstration to leave out")
        elif not (chosen and chosen.answered and chosen.answered.others):
            self._inquire([self.active], variants=True)

    def _inquire(self, places: Sequence[int], variants: bool) -> None:
        """Ask for these sides, the cost first, and show the answers."""
        if self._selecting:  # what the sides show is not what will be there
            self._afterwards = lambda: self._inquire(places, variants)
            return
        asked = [i for i in places if (chosen := self.side(i).chosen) and chosen.seen]
        if not asked:
            return
        settings = self.settings
        found = [self.side(i).chosen for i in asked]
        shown = [QueryShots(one.seen.query, tuple(one.shots)) for one in found if one and one.seen]

        def check(cancel: CancelToken | None = None) -> StabilityCheck:
            workspace, session_cache = self.review.opened(), self.review.session_cache()
            task = session_cache.selector(workspace, settings).task
            return StabilityCheck(session_cache.client(workspace, settings, cancel), task, shown, variants=variants)

        def begun() -> None:
            for i in asked:
                self.side(i).head(self.methods[i], f"asking {display_line(settings.llm, 30)} …")

        self.ask_llm(
            settings,
            lambda: check().cost(),
            lambda cancel: check(cancel).run(Budget(price=price_of(settings))),
            lambda answered: self._answered(asked, found, answered),
            begun,
        )

    def _answered(self, places: Sequence[int], asked: Sequence[Chosen | None], answered: Sequence[Stability]) -> None:
        for i, chosen, found in zip(places, asked, answered, strict=True):
            if chosen is None or self.side(i).chosen is not chosen:
                continue  # something else stands there by now; the answer is in the cache
            if not found.others and chosen.answered and chosen.answered.others:
                found = chosen.answered  # a whole answer that is known already takes nothing away
            if found.dropped:
                self.notify(
                    f"{found.dropped} of the lowest-ranked demonstrations did not fit into {found.limit:,} tokens",
                    severity="warning",
                )
            self.side(i).chosen = replace(chosen, answered=found)
        self._retell()

    def _retell(self) -> None:
        sides = [self.side(0), self.side(1)]
        for side, other in zip(sides, sides[::-1], strict=True):
            if side.chosen:
                side.tell(side.chosen, other.chosen, self.settings.llm)
        self._explain()

    def failed(self, kind: str, error: CurateError) -> None:
        super().failed(kind, error)
        if kind == "select":
            self._selecting, self._afterwards = False, None
        self.ended()

    def ended(self) -> None:
        for i in (0, 1):
            self.side(i).head(self.methods[i])

    # Decisions.

    def action_prune(self) -> None:
        side = self.side()
        if side.chosen and side.current is not None:
            self.review.decide("prune", "demonstration", [side.chosen.shots[side.current].id], "in review, preview")
