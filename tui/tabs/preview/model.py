"""State of the Preview tab: the query, the methods, their selections and the LLM's answers. No Textual.

Keys become calls of `PreviewModel`; what to read or ask is returned as a request that a thread executes, and the result
is passed back to the model.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....engine.base.arrays import Int64s
from ....engine.base.errors import CurateError
from ....engine.base.progress import CancelToken
from ....engine.checks.ledger import LedgerEntry, ledger
from ....engine.llm.asking import price_of
from ....engine.llm.budget import Budget
from ....engine.llm.cost import Plan
from ....engine.llm.graded import grading_set
from ....engine.pool.display import display_line
from ....engine.pool.prompts import Prompt
from ....engine.pool.records import Demonstration, Query
from ....engine.prompting.template import built_in, names, parted
from ....engine.retrieval.view import PoolView
from ....engine.select.methods import METHODS
from ....engine.select.preview import Preview, preview
from ....engine.select.selector import Selector
from ....engine.select.session import SessionCache
from ....engine.select.stability import QueryShots, Stability, StabilityCheck
from ....engine.store import runs
from ....engine.store.browse import Filter, Listed, listed, matching, pruned_rows
from ....engine.store.demonstrations import active_rows, fetch, workspace_fingerprint
from ....engine.store.settings import Settings, with_template
from ....engine.store.trials import Grading
from ....engine.store.workspace import Workspace
from ...model import Empty, TabModel
from ...widgets.demonstration import as_json

PANES = ("why", "shot", "prompt", "stability")
"""Contents of the lower half beside the reasons."""

MOST_LISTED = 5_000
"""Maximum validation queries in the list; the others are reached one by one."""

MOST_SHOTS = 64

TEMPLATES = (".jinja", ".jinja2", ".j2")
"""How the names of template files end."""


@dataclass(frozen=True, slots=True)
class PreviewData:
    """What selections depend on: the workspace's fingerprint, the settings, trained methods, validation rows."""

    fingerprint: tuple[object, ...]
    settings: Settings
    trained: frozenset[str]
    validation: Int64s
    ledger: Mapping[int, LedgerEntry]
    grading: Grading

    def listed_queries(self, workspace: Workspace) -> list[Listed]:
        """The validation queries that the list offers. For threads."""
        return listed(workspace, self.validation[:MOST_LISTED], pruned_rows(workspace))


def read(workspace: Workspace, settings: Settings) -> PreviewData | Empty:
    """What selections depend on, for the current workspace."""
    if not active_rows(workspace).size:
        return Empty(
            "The active pool is empty",
            "Here you see which demonstrations a query gets and why.",
            "icl-curate undo" if pruned_rows(workspace).size else "icl-curate index POOL.jsonl",
        )
    grading = grading_set(workspace, settings)
    done = {run.kind for run in runs.runs(workspace, None, 500) if run.status == "done"}
    return PreviewData(
        workspace_fingerprint(workspace),
        settings,
        frozenset(name for name, method in METHODS.items() if method.trained in done),
        matching(workspace, Filter(split="validation")),
        {entry.row: entry for entry in ledger(workspace, grading=grading)},
        grading,
    )


@dataclass(frozen=True, slots=True)
class MethodSelection:
    """A selection, the seconds it took, and the LLM's cached answer to it; or why there is none."""

    seen: Preview | None
    took: float = 0.0
    answered: Stability | None = None
    error: CurateError | None = None

    @property
    def shots(self) -> Sequence[Demonstration]:
        return [shot.demonstration for shot in self.seen.shots] if self.seen else []

    @property
    def prompt(self) -> Prompt | None:
        """The prompt for the LLM, or the one it answered."""
        return self.answered.whole.prompt if self.answered else self.seen.prompt if self.seen else None


@dataclass(frozen=True, slots=True)
class SelectionRequest:
    """Make a selection with each of ``methods``: for the ``typed`` query, or for that of ``row``."""

    typed: str
    row: int
    settings: Settings
    methods: tuple[str, ...]

    def select(self, workspace: Workspace, session: SessionCache) -> tuple[Query, list[MethodSelection]]:
        """The query and its selections; no LLM is called. For threads."""
        with workspace.read():  # opened once for all of it
            query = Query(self.typed) if self.typed else fetch(workspace, [self.row])[0].as_query()
            view = session.view(workspace, self.settings)
            return query, [_select(view, query, replace(self.settings, method=name), session) for name in self.methods]


def _select(view: PoolView, query: Query, settings: Settings, session: SessionCache) -> MethodSelection:
    """One method's selection with its cached answers, or why there is none."""
    try:
        selector = Selector(view.workspace, settings=settings, view=view)
        started = time.monotonic()
        seen = preview(view.workspace, query, settings, selector=selector)
        took = time.monotonic() - started
    except CurateError as error:
        return MethodSelection(None, error=error)
    answered = None
    if session.may_look(settings):
        with suppress(CurateError):  # without cached answers, nothing is shown
            shown = QueryShots(query, tuple(shot.demonstration for shot in seen.shots))
            llm = session.client(view.workspace, settings)
            [answered] = StabilityCheck.prepare(llm, selector.task, [shown]).from_cache()
    return MethodSelection(seen, took, answered)


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """Ask the LLM the prompts of the selections ``chosen`` on ``sides``; with ``variants`` also without each
    demonstration and in reversed order."""

    sides: tuple[int, ...]
    chosen: tuple[MethodSelection, ...]
    settings: Settings
    variants: bool

    def cost(self, workspace: Workspace, session: SessionCache) -> Plan:
        """The cost of asking; nothing is sent. For threads."""
        return self._check(workspace, session).cost()

    def ask(self, workspace: Workspace, session: SessionCache, cancel: CancelToken) -> Sequence[Stability]:
        """The answers, one for each of ``chosen``. For threads."""
        return self._check(workspace, session, cancel).ask(Budget(price=price_of(self.settings)))

    def _check(self, workspace: Workspace, session: SessionCache, cancel: CancelToken | None = None) -> StabilityCheck:
        shown = [QueryShots(one.seen.query, tuple(one.shots)) for one in self.chosen if one.seen]
        task, llm = session.selector(workspace, self.settings).task, session.client(workspace, self.settings, cancel)
        return StabilityCheck.prepare(llm, task, shown, variants=self.variants)


def _change(before: MethodSelection | None, now: MethodSelection) -> tuple[Sequence[str], Sequence[str]]:
    """What is new in a selection for the same query with as many demonstrations, and what is gone."""
    if before is None or before.seen is None or now.seen is None or len(before.shots) != len(now.shots):
        return (), ()
    if before.seen.query.input != now.seen.query.input:
        return (), ()
    were, are = ({shot.row: shot.id for shot in one.shots} for one in (before, now))
    return [are[row] for row in are.keys() - were.keys()], [were[row] for row in were.keys() - are.keys()]


class Side:
    """One half of the comparison: a method and its selection."""

    def __init__(self) -> None:
        self.method = ""
        self.chosen: MethodSelection | None = None
        self.doing = ""
        """The current activity for this side, as text."""
        self.change: tuple[Sequence[str], Sequence[str]] = (), ()
        """Ids of the demonstrations that a decision has brought into the selection, and of those it has removed."""
        self.settled = False
        """Indexes are loaded: from the second selection on, its time is that of a running process."""

    def wait(self, method: str, doing: str = "") -> None:
        """A selection with this method is in progress; an earlier one of another method is dropped."""
        if method != self.method:
            self.method, self.chosen = method, None
        self.doing = doing

    def take(self, chosen: MethodSelection) -> None:
        """Set a selection, or an update of it."""
        self.change = _change(self.chosen, chosen)
        self.settled, self.chosen, self.doing = self.chosen is not None, chosen, ""


def template_options(folders: Sequence[Path]) -> list[tuple[str, str]]:
    """The built-in templates with a line on each, and the files in these folders."""
    built = [(name, parted(built_in(name))[0].about) for name in names()]
    files = (path for folder in folders for path in sorted(folder.glob("*.j*")) if path.suffix in TEMPLATES)
    return [*built, *((str(path), "a file") for path in files)]


def settings_of_template(settings: Settings, name: str) -> Mapping[str, Any]:
    """The settings of a template. Raises `UsageError` if it cannot be read or is malformed."""
    chosen = with_template(settings, name)
    return {key: getattr(chosen, key) for key in ("template", "template_text", "prompt_format")}


class PreviewModel(TabModel):
    """Two selections for one query, side by side."""

    def __init__(self) -> None:
        self.found: PreviewData | None = None
        self.query: Query | None = None
        """The query whose selections are shown."""
        self.place = 0
        """Position of the validation query; used while nothing is typed."""
        self.typed = ""
        self.methods = ["", ""]
        self.shots: int | None = None
        """Number of shots, if it differs from the settings."""
        self.template: Mapping[str, Any] = {}
        """The settings of a template that was chosen here."""
        self.active = 0
        """The current side."""
        self.pane = "why"
        self.sides = (Side(), Side())
        self.selecting = False
        """A selection is in progress, or follows what is being typed."""
        self._unselected = False
        """The last selection failed: it is made again once the workspace was read again."""
        self._row: int | None = None
        """The validation query requested by an earlier session or another tab."""
        self._postponed: tuple[Sequence[int], bool] | None = None
        """An LLM request made while a selection was in progress."""

    @property
    def side(self) -> Side:
        return self.sides[self.active]

    @property
    def settings(self) -> Settings:
        """The workspace's settings with the number of shots and the template set here."""
        assert self.found is not None
        changed: dict[str, Any] = {} if self.shots is None else {"k": self.shots}
        return replace(self.found.settings, **changed, **self.template)

    @property
    def queries(self) -> int:
        """Number of validation queries."""
        return int(self.found.validation.size) if self.found else 0

    def take(self, data: PreviewData) -> bool:
        """The workspace was read; returns whether selections must be made again."""
        before, self.found = self.found, data
        if before is None:
            trained = (name for name in ("topick", "ranker") if name in data.trained)
            names = dict.fromkeys([data.settings.method, *trained, "bm25", "dense"])
            usual = [name for name in names if name in METHODS]  # what is compared at first
            for i, name in enumerate(self.methods):
                self.methods[i] = name or next(method for method in usual if method not in self.methods)
            self._to_row(data)
        return before is None or self._unselected or (before.fingerprint, before.settings, before.trained) != (
            data.fingerprint, data.settings, data.trained,
        )  # fmt: skip

    def _to_row(self, found: PreviewData) -> None:
        at = np.flatnonzero(found.validation == self._row)
        self.place = int(at[0]) if at.size else 0

    def remember(self) -> dict[str, Any]:
        row = int(self.found.validation[self.place]) if self.found and self.queries else self._row
        return {"methods": self.methods, "shots": self.shots, "row": row, "typed": self.typed, "pane": self.pane}

    def recall(self, stored: dict[str, Any]) -> None:
        methods = stored.get("methods")
        if isinstance(methods, list) and len(methods) == 2:
            self.methods = [name if name in METHODS else "" for name in map(str, methods)]
        shots, row = stored.get("shots"), stored.get("row")
        self.shots = shots if isinstance(shots, int) and 0 <= shots <= MOST_SHOTS else None
        self._row = row if isinstance(row, int) else None
        self.typed = str(stored.get("typed", ""))
        self.pane = stored["pane"] if stored.get("pane") in PANES else "why"

    # The query.

    def want_row(self, row: int) -> None:
        """For other tabs: the validation query of this row."""
        self._row, self.typed = row, ""
        if self.found:
            self._to_row(self.found)

    def want_place(self, place: int) -> None:
        """The validation query at this position."""
        self.place, self.typed = place, ""

    def step(self, by: int) -> bool:
        """Go to another validation query, or from a typed one to the first; False if there is none."""
        if not self.queries:
            return False
        self.want_place(0 if self.typed else (self.place + by) % self.queries)
        return True

    def type_query(self, value: str) -> bool:
        """Set the typed query; returns whether it differs in more than blanks."""
        before, self.typed = self.typed, value
        if changed := before.strip() != value.strip():
            self.selecting, self._postponed = self.found is not None and bool(value.strip() or self.queries), None
        return changed

    # Selecting.

    def method_options(self) -> list[tuple[str, str]]:
        """Every method with a one-line description."""
        trained = self.found.trained if self.found else frozenset()
        return [
            (name, method.about if not method.trained or name in trained else "not trained yet")
            for name, method in METHODS.items()
        ]

    def set_shots(self, by: int) -> None:
        """Change the number of shots."""
        self.shots = max(0, min(self.settings.k + by, MOST_SHOTS))

    def select(self, same: bool = False) -> SelectionRequest | None:
        """The selections to be made now; None while there is no query. ``same``: an LLM request made meanwhile was
        meant for these."""
        typed = self.typed.strip()
        if self.found is None or not (typed or self.queries):
            return None
        self.selecting, self._unselected = True, False
        self._postponed = self._postponed if same else None
        for side, method in zip(self.sides, self.methods, strict=True):
            side.wait(method, "selecting …")
        row = int(self.found.validation[self.place]) if self.queries else -1
        return SelectionRequest(typed, row, self.settings, tuple(self.methods))

    def selected(self, query: Query, chosen: Iterable[MethodSelection]) -> PromptRequest | None:
        """Set the selections; returns the LLM request made meanwhile."""
        self.query, self.selecting = query, False
        for side, one in zip(self.sides, chosen, strict=True):
            side.take(one)
        return self.ask(*self._postponed) if self._postponed else None

    def stop_selecting(self) -> None:
        """The selection failed."""
        self.selecting, self._postponed, self._unselected = False, None, True

    # Requests.

    def ask(self, sides: Sequence[int], variants: bool) -> PromptRequest | None:
        """The prompts of these sides; None if nothing was selected, or while a new selection is in progress: `selected`
        then returns the request."""
        if self.selecting:
            self._postponed = sides, variants
            return None
        found = [(i, chosen) for i in sides if (chosen := self.sides[i].chosen) and chosen.seen]
        if not found:
            return None
        places, chosen_ones = zip(*found, strict=True)
        return PromptRequest(places, chosen_ones, self.settings, variants)

    def nothing_to_leave_out(self) -> bool:
        """Whether the current side has a selection without demonstrations."""
        chosen = None if self.selecting else self.side.chosen
        return bool(chosen and chosen.seen and not chosen.shots)

    def ask_stability(self) -> PromptRequest | None:
        """The prompts for answer stability, if they were not answered yet."""
        chosen = None if self.selecting else self.side.chosen
        if chosen and chosen.answered and chosen.answered.others:
            return None
        return self.ask([self.active], variants=True)

    def asking(self, request: PromptRequest) -> None:
        """The LLM is being called."""
        for i in request.sides:
            self.sides[i].wait(self.methods[i], f"asking {display_line(request.settings.llm, 30)} …")

    def answered(self, request: PromptRequest, answers: Sequence[Stability]) -> list[str]:
        """Set the answers; returns warnings for the user."""
        warnings = []
        for i, chosen, answer in zip(request.sides, request.chosen, answers, strict=True):
            if self.sides[i].chosen is not chosen:
                continue  # the selection has changed meanwhile; the answer is in the cache
            if not answer.others and chosen.answered and chosen.answered.others:
                answer = chosen.answered  # a known complete answer is not replaced by a partial one
            if answer.dropped:
                warnings.append(
                    f"{answer.dropped} of the lowest-ranked demonstrations did not fit into {answer.limit:,} tokens"
                )
            self.sides[i].chosen = replace(chosen, answered=answer)
        for side in self.sides:
            if side.chosen:
                side.take(side.chosen)
        return warnings

    def ended(self) -> None:
        """No work is in progress any more, whatever its result."""
        for side, method in zip(self.sides, self.methods, strict=True):
            side.wait(method)

    # Current demonstration.

    def shot(self, at: int) -> Demonstration | None:
        """The demonstration in line ``at`` of the current side."""
        chosen = self.side.chosen
        return chosen.shots[at] if chosen and at < len(chosen.shots) else None

    def copied(self, at: int) -> str:
        """As JSON: the prompt, or the demonstration in line ``at``; without one, the query; without a selection, what
        makes one possible."""
        chosen = self.side.chosen
        if chosen is None or chosen.seen is None:
            return chosen.error.fix if chosen and chosen.error else ""
        if self.pane == "prompt":
            messages = [asdict(message) for message in chosen.seen.prompt.messages]
            return json.dumps(messages, ensure_ascii=False, indent=1)
        shot = self.shot(at)
        return as_json(shot) if shot else chosen.seen.query.input
