"""Plain terminal output shared by the commands: tables on stdout, narration on stderr.

Texts reach rich as they are, never as markup; `console.SafeConsole` makes all of them visible on their way out. `cell`
and `display_line` are for what has to stay on one line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..engine.pool.display import display_line, display_text
from ..engine.progress import Event
from .console import stderr, stdout

if TYPE_CHECKING:
    from ..engine.llm.probing import Check
    from ..engine.ranker.ledger import LedgerEntry
    from ..engine.select.preview import Preview
    from ..engine.sources.audit import AuditReport, Result
    from ..engine.sources.train import Tuned
    from ..engine.store.ledger import Flip
    from ..engine.store.trials import SourceSummary

NARROW = 16
"""A column no wider than this keeps its width on a small terminal."""

MOST_BATCHES = 12
"""Batches of a training run that are listed: the first and the last."""

MOST_SOURCES = 40
"""Sources an audit lists, the lowest first."""

LEAST_NEEDS, FAINT = 5, 0.05
"""Required topics that are listed whatever their strength, and the strength from which the others are."""

QUIET_SECONDS = 30.0
"""Off a terminal, a line of progress at most this often."""


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "", note: str = "") -> None:
    """A table with numbers to the right; a column named ``x>`` takes the room that is left."""
    numeric = [
        bool(rows) and all(isinstance(row[i], (int, float, type(None))) for row in rows) for i in range(len(columns))
    ]
    table = Table(
        title=display_line(title) or None,
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    cells = [[cell(value) for value in row] for row in rows]
    for i, (name, right) in enumerate(zip(columns, numeric, strict=True)):
        wide = name.endswith(">")
        widest = max([len(name), *(row[i].cell_len for row in cells)])
        table.add_column(
            display_line(name.rstrip(">")),
            justify="right" if right else "left",
            no_wrap=not wide,
            ratio=1 if wide else None,
            min_width=widest if widest <= NARROW else None,  # figures are never cut, texts give way
            overflow="ellipsis",
        )
    for line in cells:
        table.add_row(*line)
    console = stdout()
    console.print(table)
    if note:
        console.print(Text(note, style="dim"))


def cell(value: Any) -> Text:
    """A value as a table shows it."""
    if value is None:
        return Text("–", style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, float):
        return Text(f"{value:.3f}")
    if isinstance(value, int):
        return Text(f"{value:,}")
    return value if isinstance(value, Text) else Text(display_line(str(value)))


def show_text(text: str, style: str = "") -> None:
    """Lines of a pool's or an LLM's text, made safe."""
    stdout().print(Text(display_text(text), style=style))


def show_preview(seen: Preview, explain: bool = False) -> None:
    """The demonstrations of a query, best first; with ``explain`` every part of each score and the exact prompt."""
    names = list(dict.fromkeys(name for shot in seen.shots for name in shot.parts)) if explain else []
    rows = [
        [
            i,
            shot.score,
            *(shot.parts.get(name) for name in names),
            shot.demonstration.source,
            shot.demonstration.id,
            shot.demonstration.input,
            shot.demonstration.output,
        ]
        for i, shot in enumerate(seen.shots, 1)
    ]
    heads = ["", "score", *(name.replace("_", " ") for name in names), "source", "id", "input>", "output"]
    show_table(heads, rows, title=f"{seen.method}: {len(rows)} demonstrations")
    if explain and seen.needs:
        show_needs(seen)
    for note in seen.notes:
        show_text(f"note: {note}")
    if explain:
        for message in seen.prompt.messages:
            show_text(f"\n[{message.role}]", style="dim")
            show_text(message.content)
    if seen.answer is not None:
        unsure = "" if seen.answer.uncertainty is None else f"  (uncertainty {seen.answer.uncertainty:.3f})"
        show_text(f"\n{seen.llm} answers: {seen.answer.text}{unsure}", style="bold")


def show_needs(seen: Preview) -> None:
    """The topics a query requires, what the LLM knows of them, and what each pick adds."""
    strong = [need for i, need in enumerate(seen.needs) if i < LEAST_NEEDS or need.required >= FAINT]
    rows = [[need.topic, Text(bar(need.required)), need.required, need.knowledge] for need in strong]
    show_table(["required topic", "", "required", "LLM knows"], rows)
    picks = [
        [
            i,
            ", ".join(f"{topic} +{gain:.2f}" for topic, gain in shot.adds if gain >= 0.005)
            or "little that is required",
        ]
        for i, shot in enumerate(seen.shots, 1)
    ]
    show_table(["", "adds>"], picks)


def show_stability(done: Mapping[str, Any]) -> None:
    """The answer to a prompt, and to the prompt without each demonstration and in turned order."""
    found = done["stability"]
    shown = {shot["id"]: shot for shot in done["demonstrations"]}
    rows: list[list[Any]] = [["as selected", found["answer"] or found["failure"], _sure(found), None, "", ""]]
    for i, one in enumerate(found["without"], 1):
        added = one["adds"]
        rows.append(
            [
                f"without {i}", one["answer"] or one["failure"], _sure(one),
                None if added is None else f"{added:+.3f}", "" if one["same"] else "changes", shown[one["id"]]["input"],
            ]
        )  # fmt: skip
    if found["turned"]:
        one = found["turned"]
        same = "" if one["same"] else "changes"
        rows.append(["order turned", one["answer"] or one["failure"], _sure(one), None, same, ""])
    note = (
        f"{found['kept']} of {found['of']} changed prompts keep the answer of {done['llm']}; adds: to its probability"
    )
    show_table(["", "answer", "sure", "adds", "", "left out>"], rows, note=note)


def _sure(told: Mapping[str, Any]) -> float | None:
    return None if told["uncertainty"] is None else 1.0 - told["uncertainty"]


def show_plan(plan: Mapping[str, Any], name: str = "") -> None:
    """What a run would ask and cost."""
    show_table(["", ""], plan_rows(plan), title=name)


def plan_rows(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a run would ask and cost, by name, from the fields of a `Plan` and its ``destination``, if prompts leave
    this machine."""
    cost, tokens_in, tokens_out = plan["cost"], plan["tokens_in"], plan["tokens_out"]
    price = "not known: set price_in and price_out" if cost is None else f"${cost[0]:.4f} to ${cost[1]:.4f}"
    if cost is not None and cost[1] == 0.0:
        price = "nothing"
    return [
        ("prompts", f"{plan['requests']:,}, {plan['distinct']:,} of them different"),
        ("answered before", f"{plan['cached']:,}"),
        ("to ask", f"{plan['to_ask']:,}"),
        ("tokens in", f"{tokens_in[0]:,} to {tokens_in[1]:,}"),
        ("tokens out", f"{tokens_out[0]:,} to {tokens_out[1]:,}"),
        ("cost", price),
        *([("prompts go to", plan["destination"])] if plan.get("destination") else []),
    ]


def show_check(found: Check) -> None:
    """What an LLM was seen to do."""
    able = found.capabilities
    rows: list[list[Any]] = [["LLM", found.llm], ["reachable", found.reachable]]
    if found.latency is not None:
        rows.append(["latency", f"{found.latency * 1000:,.0f} ms"])
    if able is not None:
        rows += [
            ["log-probabilities", able.logprobs],
            ["scores options", able.scoring],
            ["follows instructions", able.instructs],
            ["context", "not known" if able.context_tokens is None else f"{able.context_tokens:,} tokens"],
            *(["note", note] for note in able.notes),
        ]
    rows.append(["price", "known" if found.price_known else "not known: set price_in and price_out"])
    show_table(["", ">"], rows)


def show_evaluation(table: Mapping[str, Any]) -> None:
    """The comparison of methods and what it was measured on."""
    methods = table["methods"]
    columns: dict[str, Callable[[str, Mapping[str, Any]], Any]] = {
        "method": lambda name, row: name,
        table["metric"]: lambda name, row: row["accuracy"],
        "95 %": lambda name, row: f"{row['ci95'][0]:.3f}–{row['ci95'][1]:.3f}",
        "std": lambda name, row: row["std"] if row["seeds"] > 1 else None,
        "F1": lambda name, row: row.get("f1"),
        "easy": lambda name, row: row["easy"],
        "hard": lambda name, row: row["hard"],
        "topics": lambda name, row: _last(row.get("topic_coverage")),
        "repeated": lambda name, row: _last(row.get("topic_redundancy")),
        "shots": lambda name, row: int(row["shots"]) if row["shots"].is_integer() else row["shots"],
        "calls": lambda name, row: row["calls"],
        "failures": lambda name, row: row["failures"] or None,
        "against best": lambda name, row: _versus(row),
        "p": lambda name, row: _p_value(row),
    }
    shown = {
        name: [value(method, row) for method, row in methods.items()]
        for name, value in columns.items()
        if any(value(method, row) is not None for method, row in methods.items())
    }
    answers = sum(row["calls"] for row in methods.values())
    cached = sum(row["cached_calls"] for row in methods.values())
    read = sum(row["tokens_in"] for row in methods.values())
    notes = [
        f"{table['queries']:,} {table['split']} queries, k = {table['k']}, {table['llm']} ({table['answered_by']}), "
        f"run {table['run']}; {answers:,} answers, {cached:,} of them from the cache, {read:,} tokens read",
        f"easy: right at zero shots ({table['easy_queries']:,} queries); 95 % by bootstrap over queries; against best: "
        "the best other baseline, p by a paired test, Holm-adjusted",
    ]
    if "topics" in shown:
        notes.append(
            "topics: of the 20 topics a query requires, those its demonstrations cover; repeated: share of a "
            "demonstration's topics that earlier ones cover, at the last shot"
        )
    if table["llm"] == "offline":
        notes.append("the offline reader is a stand-in, not an LLM: its figures say nothing about yours")
    show_table(list(shown), list(zip(*shown.values(), strict=True)), note="\n".join(notes))


def _last(curve: Sequence[float] | None) -> float | None:
    return curve[-1] if curve else None


def _p_value(row: Mapping[str, Any]) -> Text | None:
    if "versus" not in row:
        return None
    return p_value(row["versus"]["p_holm"])


def p_value(p: float) -> Text:
    """A p-value as tables show it."""
    return Text("< .001" if p < 0.001 else f"{p:.3f}", justify="right")


def _versus(row: Mapping[str, Any]) -> str | None:
    against = row.get("versus")
    return None if against is None else f"{against['difference']:+.3f} {against['method']}"


def show_sources(found: Sequence[SourceSummary]) -> None:
    """Sources, heaviest first once something was learnt of them."""
    learnt = any(s.weight is not None for s in found)
    rows = [
        [
            s.source,
            *(
                [Text(bar(s.weight or 0.0)), s.weight, s.leave_one_out, s.reliability, s.accuracy, s.hits]
                if learnt
                else []
            ),
            s.demonstrations,
            s.demonstrations - s.active,
            s.duplicates,
            s.kept,
        ]
        for s in found
    ]
    heads = ["", "weight", "leave 1 out", "reliability", "alone", "hits"] if learnt else []
    note = "weight: multilinear; alone: share of right answers with one demonstration of the source" if learnt else ""
    show_table(["source", *heads, "size", "pruned", "repeats", "kept"], rows, note=note)


def show_training(done: Mapping[str, Any]) -> None:
    """What a run of ``train sources`` found and what to do next."""
    metrics = done["metrics"]
    show_text(
        f"run {done['run']}: {done['calls']:,} answers of {done['llm']}, {done['cached_calls']:,} from the cache; "
        f"vote of single answers right for {metrics['baseline']:.3f} of {metrics['queries']:,} validation queries; "
        f"best use gains {metrics['gain']:+.3f} ± {metrics['gain_error']:.3f} (cross-fitted)"
    )
    show_text("next: icl-curate prune --tune" if metrics["worth_it"] else "nothing gains beyond noise: prune nothing")


def show_tuned(tuned: Tuned) -> None:
    """The pruning curve and what was chosen on it."""
    kept = len(tuned.kept)
    rows = [
        [threshold, dropped, kept + len(tuned.pruned) - dropped, Text(bar(accuracy, 20)), accuracy,
         "chosen" if tuned.worth_it and dropped == len(tuned.pruned) else ""]
        for threshold, dropped, accuracy in tuned.curve
    ]  # fmt: skip
    show_table(["threshold", "dropped", "kept", "", "validation", ""], rows, title=f"pruning by {tuned.estimator}")
    if tuned.worth_it:
        show_text(
            f"validation {tuned.validation_before:.3f} → {tuned.validation_after:.3f} "
            f"(cross-fitted gain {tuned.gain:+.3f} ± {tuned.gain_error:.3f}): drops {', '.join(tuned.pruned)}"
        )
    else:
        show_text(f"cross-fitted gain {tuned.gain:+.3f} ± {tuned.gain_error:.3f}: within noise, nothing is pruned")


def show_ranker(done: Mapping[str, Any]) -> None:
    """How training went, batch by batch in brief, and what the ranker is worth on held-out queries."""
    metrics = done["metrics"]
    batches = metrics["batches"]
    shown = batches if len(batches) <= MOST_BATCHES else [*batches[: MOST_BATCHES // 2], *batches[-MOST_BATCHES // 2 :]]
    rows = [[b["batch"], b["loss"], b["sigma"], b["shots"], b["calls"], b["accuracy"]] for b in shown]
    left = len(batches) - len(shown)
    show_table(
        ["batch", "loss", "σ", "shots", "calls", "accuracy"], rows, note=f"{left} batches between" if left else ""
    )
    by_shots = "  ".join(f"{shots}: {value:.3f}" for shots, value in metrics["accuracy_by_shots"].items())
    show_text(f"accuracy by shots  {by_shots}")
    best = metrics["best"]
    show_text(
        f"run {done['run']}: {done['calls']:,} answers of {done['llm']}, {done['cached_calls']:,} from the cache, "
        f"{metrics['shots']:,} shots; best epoch {best['epoch']}, held-out accuracy {_share(best['accuracy'])}"
    )
    if metrics["collapsed"]:
        show_text("the policy collapsed onto few demonstrations; the best epoch before that is kept")
    show_text(f"next: icl-curate evaluate --methods bm25,{metrics['method']}; icl-curate demos --misleading")


def show_ledger(found: Sequence[LedgerEntry]) -> None:
    """What single demonstrations did to answers."""
    rows = [
        [
            s.id,
            s.source,
            "pruned" if s.pruned else "",
            s.shown,
            s.helped,
            s.hurt,
            s.estimate,
            f"{s.low:+.3f} to {s.high:+.3f}",
        ]
        for s in found
    ]
    note = (
        "effect: shrunken net effect on accuracy with its 95 % interval; icl-curate demos --flips ID shows the prompts"
    )
    show_table(["id", "source", "", "shown", "helped", "hurt", "effect", "95 %"], rows, note=note)


def show_flips(found: Sequence[Flip]) -> None:
    """The queries whose answer turned when a demonstration was added."""
    rows = [
        [f.query_id, f.query_input, f.answer_before, f.answer_after, "helped" if f.helped else "hurt", len(f.shown)]
        for f in found
    ]
    show_table(["query", "input>", "before", "after", "", "shots"], rows)


def _share(value: float | None) -> str:
    return "not known" if value is None else f"{value:.3f}"


def show_audit(found: AuditReport) -> None:
    """Sources of a log with their scores, and each way of using them."""
    names = list(found.estimators)
    rows = [[s.source, s.hits, *(s.scores[name] for name in names), s.kept] for s in found.sources[:MOST_SOURCES]]
    left = len(found.sources) - len(rows)
    note = f"… and {left:,} more sources with higher scores: audit --json lists all" if left else ""
    show_table(["source", "hits", *names, "kept"], rows, note=note)
    ways = [("keep everything", found.baseline), *((f"prune by {n}", r) for n, r in found.estimators.items())]
    rows = [
        [way, result.validation_accuracy, result.test_accuracy, len(result.pruned), _interval(result)]
        for way, result in [*ways, ("chosen", found.chosen)]
    ]
    show_table(["way", "validation", "test", "pruned", "gain on test, 95 %"], rows)
    if found.chosen.setting is not None:
        s = found.chosen.setting
        show_text(f"chosen on validation: {s.use} by {s.estimator}, {s.voters} voters, decay {s.decay}")
    for note in found.notes:
        show_text(note)


def _interval(result: Result) -> str:
    if result.test_gain is None:
        return ""
    mean, low, high = result.test_gain
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def bar(share: float, width: int = 10) -> str:
    """A share in [0, 1] as a bar of eighth blocks."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)


class Narrator:
    """Draws `Event`s on stderr: bars where it is a terminal, else a line now and then; notes always."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = stderr()
        self._live = self._console.is_terminal and not quiet
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, float] = {}
        self._progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[live]}", style="dim", markup=False),
            console=self._console, transient=True, disable=not self._live,
        )  # fmt: skip

    def __enter__(self) -> Narrator:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        if event.note and not self._quiet:
            self._console.print(Text(display_line(event.note)))
        live = "  ".join(f"{name} {_figure(value)}" for name, value in event.fields.items() if value)
        if self._live:
            self._draw(event, live)
        elif event.total and not self._quiet and self._due(event):
            self._console.print(Text(display_line(f"{event.task}: {event.done:,} of {event.total:,}  {live}".rstrip())))

    def _draw(self, event: Event, live: str) -> None:
        if event.task not in self._tasks:
            if event.total is None and not event.done:
                return
            self._tasks[event.task] = self._progress.add_task(display_line(event.task), total=event.total, live=live)
        self._progress.update(self._tasks[event.task], completed=event.done, total=event.total, live=live)

    def _due(self, event: Event) -> bool:
        now = time.monotonic()
        first = self._said.setdefault(event.task, now)
        if now - first < QUIET_SECONDS:
            return False
        self._said[event.task] = now
        return True


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"
