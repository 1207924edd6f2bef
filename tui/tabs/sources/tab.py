"""Sources: what each is worth, what pruning would bring, and pruning them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import Static

from ....engine.pool.display import display_line
from ....engine.progress import CancelToken
from ....engine.store.decisions import Action as Verb
from ....engine.store.trials import SourceSummary, source_summaries
from ....engine.store.workspace import Workspace
from ...actions import Action, bindings
from ...tab import Empty, Tab
from ...widgets.curve import Curve, Drawn
from ...widgets.lines import Bar, Column, Line
from ...widgets.table import LineTable

if TYPE_CHECKING:  # imports numba where it computes; the tab is there before that
    from ....engine.sources.train import Curves, Tuned

SORTS: dict[str, Callable[[SourceSummary], Any]] = {  # what a column sorts by; None last
    "source": lambda s: s.source.lower(),
    "weight": lambda s: s.weight,
    "leave-one-out": lambda s: s.leave_one_out,
    "reliability": lambda s: s.reliability,
    "alone": lambda s: s.accuracy,
    "hits": lambda s: s.hits,
    "size": lambda s: s.demonstrations,
    "pruned": lambda s: s.demonstrations - s.active,
    "repeats": lambda s: s.duplicates,
}
LEARNT = {"bar", "weight", "leave-one-out", "reliability", "alone", "hits"}


@dataclass(frozen=True, slots=True)
class Found:
    """What the tab shows at once; curves follow."""

    sources: Sequence[SourceSummary]
    k: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Curves and what tuning says, None where there was no training."""

    curves: Curves | None
    tuned: Tuned | None


class SourcesTab(Tab):
    NAME = "sources"
    TITLE = "Sources"
    ABOUT = "Which sources help, which hurt, and what pruning gains."
    ACTIONS = (
        Action("sources.prune", "x", "Prune", "Prune the source", "icl-curate prune --source NAME"),
        Action(
            "sources.keep", "r", "Keep", "Restore the source, or mark it as kept", "icl-curate restore --source NAME"
        ),
        Action("sources.tune", "t", "Tune", "Choose the threshold by validation", "icl-curate prune --tune"),
        Action("sources.cut", "p", "Prune below", "Prune sources below the threshold", "icl-curate prune --below W"),
        Action("sources.lower", "h,left", "Lower", "Move the threshold down", footer=False, call="threshold(-1)"),
        Action("sources.raise", "l,right", "Threshold", "Move the threshold up", call="threshold(1)"),
        Action(
            "sources.look",
            "enter,o",
            "Look inside",
            "Show its demonstrations in Demos",
            "icl-curate demos --source NAME",
        ),
        Action("sources.estimator", "e", "Estimator", "Show the curve of the next estimator", footer=False),
        Action("sources.sort", "s", "Sort", "Sort by the next column", footer=False, call="sort(1)"),
        Action("sources.reverse", "S", "Reverse", "Reverse the sort order", footer=False),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings(ACTIONS)

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[SourceSummary] = []
        self.measured: Measured | None = None
        self.sort, self.descending = "weight", True
        self.estimator = ""
        self._for: tuple[int | None, int] | None = None
        self._cancel = CancelToken()

    def compose_body(self) -> ComposeResult:
        yield LineTable([])
        with Vertical(id="pruning"):
            yield Static(id="verdict")
            yield Curve()

    @property
    def table(self) -> LineTable:
        return self.query_one(LineTable)

    @property
    def current(self) -> SourceSummary | None:
        return self.sources[self.table.cursor] if self.sources else None

    def read(self, workspace: Workspace) -> Found | Empty:
        found = source_summaries(workspace)
        if not found:
            return Empty("The pool is empty", "Sources appear here after indexing.", "icl-curate index POOL.jsonl")
        return Found(found, self.review.settings().k)

    def show(self, found: Found) -> None:
        self.sources = list(found.sources)
        self._arrange()
        learnt = any(s.weight is not None for s in found.sources)
        self.set_class(not learnt, "-unlearnt")
        if learnt:
            self.in_thread("measure", lambda: self._measure(found.k), self._measured)
        else:
            self.query_one("#verdict", Static).update(
                Text.assemble(("Source weights not learned yet: ", "muted"), ("icl-curate train sources", "accent"))
            )

    def remember(self) -> dict[str, Any]:
        return {"sort": self.sort, "descending": self.descending, "estimator": self.estimator}

    def recall(self, said: dict[str, Any]) -> None:
        if said.get("sort") in SORTS:
            self.sort, self.descending = said["sort"], bool(said.get("descending"))
        self.estimator = str(said.get("estimator", ""))

    def copied(self) -> str:
        return self.current.source if self.current else ""

    def on_unmount(self) -> None:
        self._cancel.cancel()

    # The table.

    def _arrange(self) -> None:
        """Sort and draw the lines; the cursor stays on its source."""
        here = self.current.source if self.current else None
        key = SORTS[self.sort]
        known = [s for s in self.sources if key(s) is not None]
        known.sort(key=key, reverse=self.descending)
        self.sources = known + [s for s in self.sources if key(s) is None]
        table = self.table
        table.sorted_by = self.sort, self.descending
        columns, below = _columns(self.sources), self._below()
        table.arrange_columns(columns)
        table.fill([_line(s, columns, s.source in below) for s in self.sources])
        table.styles.max_height = len(self.sources) + 2
        at = next((i for i, s in enumerate(self.sources) if s.source == here), None)
        if at is not None:
            table.cursor = at

    @on(LineTable.Sort)
    def _sort_by(self, event: LineTable.Sort) -> None:
        if event.column in SORTS:
            self.descending = not self.descending if event.column == self.sort else event.column != "source"
            self.sort = event.column
            self._arrange()

    def action_sort(self, by: int) -> None:
        names = list(SORTS)
        self.sort = names[(names.index(self.sort) + by) % len(names)]
        self.descending = self.sort != "source"
        self._arrange()

    def action_reverse(self) -> None:
        self.descending = not self.descending
        self._arrange()

    # Decisions.

    def action_prune(self) -> None:
        if self.current:
            self.review.decide("prune", "source", [self.current.source], "in review")

    def action_keep(self) -> None:
        if self.current:
            verb: Verb = "keep" if self.current.active == self.current.demonstrations else "restore"
            self.review.decide(verb, "source", [self.current.source], "in review")

    def action_cut(self) -> None:
        names = [s.source for s in self.sources if s.source in self._below() and s.active]
        if not names:
            self.notify("no active source is below the threshold")
            return
        threshold = self._curve_points()[self.query_one(Curve).at][0]
        self.review.decide("prune", "source", names, f"{self.estimator} below {threshold:.3g}")

    def action_look(self) -> None:
        if self.current:
            self.review.visit("demos").show_source(self.current.source)  # type: ignore[attr-defined]

    @on(LineTable.Chosen)
    def _chosen(self) -> None:
        self.action_look()

    # The curve.

    def _measure(self, k: int) -> Measured:
        from ....engine.errors import UsageError
        from ....engine.sources.train import curves, tune

        workspace = self.review.opened()
        found = curves(workspace, k)
        try:
            tuned = tune(workspace, self.review.settings(), cancel=self._cancel) if found else None
        except UsageError:  # too few queries to choose on
            tuned = None
        return Measured(found, tuned)

    def _measured(self, measured: Measured) -> None:
        self.measured = measured
        if measured.curves is None:
            return
        names = list(measured.curves.curves)
        which = measured.curves.run, measured.curves.k
        at = self.query_one(Curve).at if which == self._for else None
        self._for = which
        if self.estimator not in names:
            self.estimator = measured.tuned.estimator if measured.tuned else names[0]
        self._draw(at)

    def _curve_points(self) -> Sequence[tuple[float, int, float]]:
        if self.measured is None or self.measured.curves is None:
            return ()
        return self.measured.curves.curves.get(self.estimator, ())

    def _star(self) -> int | None:
        """The point that tuning chose, on the curve of its estimator."""
        tuned = self.measured.tuned if self.measured else None
        if tuned is None or not tuned.worth_it or tuned.estimator != self.estimator:
            return None
        return next((i for i, (_, n, _) in enumerate(self._curve_points()) if n == len(tuned.pruned)), None)

    def _draw(self, at: int | None) -> None:
        points = self._curve_points()
        star = self._star()
        self.query_one(Curve).draw(
            Drawn([(n, y) for _, n, y in points], [f"{t:.3f}" for t, _, _ in points], points[0][2], star),
            (star or 0) if at is None else at,
        )
        self._moved()

    def _below(self) -> set[str]:
        points = self._curve_points()
        if not points or self.measured is None or self.measured.curves is None:
            return set()
        threshold = points[min(self.query_one(Curve).at, len(points) - 1)][0]
        return {name for name, score in self.measured.curves.scores[self.estimator].items() if score < threshold}

    def _moved(self) -> None:
        """The threshold stands elsewhere: say what it would do."""
        self._arrange()
        points = self._curve_points()
        threshold, dropped, accuracy = points[self.query_one(Curve).at]
        size = sum(s.demonstrations for s in self.sources if s.source in self._below())
        gain = accuracy - points[0][2]
        told = Text.assemble(
            (self.estimator, "title"), (" below ", "muted"), (f"{threshold:.3f}", "accent"),
            (" drops ", "muted"), f"{dropped:,}/{len(self.sources):,}", (f" ({size:,} rows), accuracy ", "muted"),
            f"{points[0][2]:.3f} → ",
            (f"{accuracy:.3f}", "good" if gain > 0 else "bad" if gain < 0 else ""),
        )  # fmt: skip
        told.append("\n")
        told.append_text(self._advice())
        self.query_one("#verdict", Static).update(told)

    def _advice(self) -> Text:
        tuned = self.measured.tuned if self.measured else None
        if tuned is None:
            return Text("too few validation queries to choose a threshold", "muted")
        figures = f"cross-fitted gain {tuned.gain:+.3f} ± {tuned.gain_error:.3f}"
        if not tuned.worth_it:
            return Text(f"{figures}: not significant, tuning would prune nothing", "muted")
        names = display_line(", ".join(tuned.pruned), 200)
        return Text.assemble(("◆ ", "good"), (f"tuned: {tuned.estimator}, {figures}, drops {names}", "muted"))

    def action_threshold(self, by: int) -> None:
        if self._curve_points():
            self.query_one(Curve).at += by
            self._moved()

    @on(Curve.Picked)
    def _picked(self, event: Curve.Picked) -> None:
        self.query_one(Curve).at = event.at
        self._moved()

    def action_estimator(self) -> None:
        if self.measured and self.measured.curves:
            names = list(self.measured.curves.curves)
            self.estimator = names[(names.index(self.estimator) + 1) % len(names)]
            self._draw(None)

    def action_tune(self) -> None:
        tuned = self.measured.tuned if self.measured else None
        if tuned is None:
            self.notify("tuning needs source weights: icl-curate train sources", severity="warning")
            return
        self.estimator = tuned.estimator
        self._draw(None)
        if not tuned.worth_it:
            self.notify("no pruning gains significantly")


def _columns(sources: Sequence[SourceSummary]) -> list[Column]:
    """The columns there is something to show in."""
    learnt = any(s.weight is not None for s in sources)
    widest = max((cell_len(display_line(s.source)) for s in sources), default=8)
    columns = [
        Column("source", "source", min(widest, 14), grow=1, most=max(widest, 8)),
        Column("bar", "", 6, rank=3, grow=2, most=24, sortable=False),
        Column("weight", "weight", 7, right=True),
        Column("leave-one-out", "leave 1 out", 12, right=True, rank=4),
        Column("reliability", "reliability", 12, right=True, rank=5),
        Column("alone", "alone", 6, right=True, rank=2),
        Column("hits", "hits", 7, right=True, rank=7),
        Column("size", "size", 9, right=True, rank=1),
        Column("pruned", "pruned", 9, right=True, rank=8),
        Column("repeats", "repeats", 9, right=True, rank=9),
        Column("state", "", 6, sortable=False),
    ]
    return columns if learnt else [c for c in columns if c.name not in LEARNT]


def _line(s: SourceSummary, columns: Sequence[Column], below: bool) -> Line:
    gone = s.demonstrations - s.active
    state = Text("below", "warn") if below and s.kept else "pruned" if not s.kept else "partly" if gone else ""
    weight = s.weight or 0.0
    values = {
        "source": s.source,
        "bar": Bar(weight, "muted" if not s.kept else "good" if weight >= 0.5 else "bad"),
        "weight": s.weight,
        "leave-one-out": s.leave_one_out,
        "reliability": s.reliability,
        "alone": s.accuracy,
        "hits": s.hits,
        "size": s.demonstrations,
        "pruned": gone or "",
        "repeats": s.duplicates or "",
        "state": state,
    }
    return Line(tuple(values[c.name] for c in columns), "" if s.kept else "muted")
