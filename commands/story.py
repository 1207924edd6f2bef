"""The demo: a curation session on the sample data, step by step, with the built-in encoder and reader."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from ..engine.base.contract import Reported
from ..engine.base.errors import counted
from ..engine.base.packages import SAMPLE_DATA, installed
from ..engine.base.progress import Event, Monitor
from ..engine.checks.ledger import LedgerEntry, ledger
from ..engine.curate.results import TuneReport
from ..engine.curate.tune import Tuning
from ..engine.evaluate.compare import Evaluation, EvaluationPlan
from ..engine.evaluate.results import EvaluationReport
from ..engine.export.corpus import ExportPlan, export
from ..engine.export.results import ExportReport
from ..engine.index.build import IndexPlan, index_pool
from ..engine.index.results import IndexReport
from ..engine.index.staging import COLUMNS
from ..engine.llm.budget import Budget
from ..engine.llm.client import LLMClient, PaidWork, client_for
from ..engine.llm.marks import figure
from ..engine.papers.calibrate.calibration import Calibration
from ..engine.papers.calibrate.documents import queries_of
from ..engine.papers.calibrate.results import CalibratedQuery, QueryCalibration, SetCalibration
from ..engine.papers.calibrate.round_runner import CalibrationPlan
from ..engine.papers.ranker.train import RankerTraining
from ..engine.papers.topics.report import Gap, gaps
from ..engine.papers.topics.results import TopicRun
from ..engine.papers.topics.train import TopicTraining
from ..engine.pool.records import Query
from ..engine.select.preview import Preview, PreviewWithAnswer
from ..engine.store.decisions import revise
from ..engine.store.settings import Settings
from ..engine.store.trials import source_summaries
from ..engine.store.workspace import Workspace
from ..engine.trials.results import RankerRun, SourceRun
from ..engine.trials.sources import SourcePlan, SourceTraining
from ..render.calibration import show_calibration, show_calibrations
from ..render.curate import show_tuning, tuning_verdict
from ..render.evaluation import show_evaluation
from ..render.learned import show_gaps, show_ledger, show_ranker, show_sources, show_topic_training, show_training
from ..render.pool import index_rows
from ..render.preview import show_preview
from ..render.tables import show_table, show_text

Shown = Literal["nothing", "lines", "tables"]
R = TypeVar("R", bound=Reported)

SAMPLE, FACTS = SAMPLE_DATA / "support", SAMPLE_DATA / "facts"
QUESTION = "my parcel still has not come, where is it?"
TRAINED_ON, CALIBRATED = 100, 25
"""Validation queries that the sources are trained on, and queries of the fact set that are calibrated: enough to show
what the commands do."""

LISTED = 5
"""Number of ledger entries and gaps shown."""

UNTRAINED = ("zero", "random", "bm25", "dense", "dpp")
TRAINED = ("bm25", "dense", "ranker", "topick")


@dataclass(frozen=True, slots=True)
class Story(Reported):
    """What each step found; ``workspace`` is the folder that was kept, if any."""

    kind = "demo"
    index: IndexReport
    preview: Preview
    before: EvaluationReport
    training: SourceRun
    tuned: TuneReport
    ranker: RankerRun
    misleading: Sequence[LedgerEntry]
    topics: TopicRun | None
    """None without torch."""
    gaps: Sequence[Gap]
    after: EvaluationReport
    export: ExportReport
    workspace: str | None
    calibration: SetCalibration
    mended: QueryCalibration

    def as_json(self) -> dict[str, Any]:
        """The object of ``demo --json``."""
        assert self.export.written is not None
        return {
            "kind": self.kind,
            "index": self.index.as_json(),
            "preview": self.preview.as_json(),
            "before": self.before.summary(),
            "training": self.training.as_json(),
            "tuned": self.tuned.as_json(),
            "ranker": self.ranker.as_json(),
            "misleading": [entry.id for entry in self.misleading],
            "topics": self.topics and self.topics.as_json(),
            "gaps": [gap.as_json() for gap in self.gaps],
            "after": self.after.summary(),
            "export": self.export.written["counts"],
            "workspace": self.workspace,
            "calibration": self.calibration.summary(),
            "mended": self.mended.as_json(),
        }


def run_demo(workspace: Path | None, monitor: Monitor, show: Shown = "lines") -> Story:
    """Run a session from an unknown pool to an exported one, then calibrate questions with documents.

    ``show``: what each step came to in a line, or all that its command prints. Without ``workspace`` a temporary folder
    is used. Raises what the steps raise.
    """
    settings = Settings()  # the same demo, whatever the user's settings
    with _folder(workspace) as folder:
        session = _Session(Workspace.create(folder), settings, monitor, show)
        index = session.index(
            IndexPlan(
                paths=(str(SAMPLE / "pool" / "*.jsonl"),),
                validation=(str(SAMPLE / "validation.jsonl"),),
                test=(str(SAMPLE / "test.jsonl"),),
                near_duplicate=settings.near_duplicate,
                encoder=settings.encoder,
            )
        )
        with session.answering():
            preview = session.preview()
            before = session.evaluate(UNTRAINED, "compare selection methods on test")
            training, tuned = session.prune_sources()
            ranker, misleading = session.learn_ranker()
            topics, missing = session.learn_topics()
            methods = tuple(name for name in TRAINED if topics or name != "topick")
            after = session.evaluate(methods, "evaluate again on the test queries, which were not used so far")
        exported = session.export(folder / "curated.jsonl")
        if show != "nothing":
            show_text(_closing(before, after, index, tuned, exported, keep=workspace is not None))
        calibration, mended = session.calibrate(folder / "facts")
        if show == "lines":
            show_text("\nicl-curate demo --full shows what each command prints.")
        kept = str(folder) if workspace else None
    return Story(
        index, preview, before, training, tuned, ranker, misleading, topics, missing, after, exported, kept,
        calibration, mended,
    )  # fmt: skip


class _Session:
    """The steps, each with the equivalent command."""

    def __init__(self, store: Workspace, settings: Settings, monitor: Monitor, show: Shown) -> None:
        self.store, self.settings, self.monitor, self.show = store, settings, monitor, show
        self._unread = replace(monitor, report=self._told)
        self.steps = 0

    @contextmanager
    def answering(self) -> Iterator[None]:
        """One client for all steps within: the reader keeps what it has encoded."""
        with client_for(self.store, self.settings, self.monitor) as self.llm:
            yield

    def index(self, plan: IndexPlan) -> IndexReport:
        indexed = index_pool(self.store, plan, self._unread)
        told = (
            f"{counted(indexed.demonstrations, 'demonstration')} from {counted(indexed.sources, 'source')}, "
            f"{indexed.validation:,} validation and {indexed.test:,} test queries; "
            f"{sum((indexed.duplicates or {}).values()):,} repeats"
        )
        command = "index pool/*.jsonl --validation validation.jsonl --test test.jsonl"
        if self._step("index the pool", command, told):
            show_table(["", ""], index_rows(indexed))
            rows = [[s.source, s.demonstrations, s.duplicates] for s in source_summaries(self.store)]
            show_table(["source", "demonstrations", "duplicates"], rows)
        return indexed

    def preview(self) -> Preview:
        seen = self._run(lambda llm: PreviewWithAnswer.prepare(llm, Query(QUESTION)))
        first = seen.shots[0].demonstration
        nearest = f"the nearest of {len(seen.shots)}: {_cut(first.input)} → {first.output}"
        told = f"answer {seen.answer.text if seen.answer else '–'}; {nearest}"
        if self._step("preview the demonstrations of a query", f'preview "{QUESTION}" --answer', told):
            show_preview(seen)
        return seen

    def evaluate(self, methods: tuple[str, ...], title: str) -> EvaluationReport:
        report = self._run(lambda llm: Evaluation.prepare(llm, EvaluationPlan(methods=methods)))
        told = "accuracy " + ", ".join(f"{name} {figure(row.accuracy)}" for name, row in report.methods.items())
        if self._step(title, f"evaluate --methods {','.join(methods)}", told):
            show_evaluation(report)
        return report

    def prune_sources(self) -> tuple[SourceRun, TuneReport]:
        trained = self._run(lambda llm: SourceTraining.prepare(llm, SourcePlan(limit=TRAINED_ON)))
        sources = source_summaries(self.store)
        weights = sorted(((source.weight or 0.0, source.source) for source in sources), reverse=True)
        told = "weights " + ", ".join(f"{source} {weight:.2f}" for weight, source in weights)
        if self._step("learn which sources help", f"train sources --limit {TRAINED_ON}", told):
            show_sources(sources)
            show_training(trained)
        tuned = self._run(Tuning.prepare)
        if tuned.worth_it:
            revise(self.store, tuned.revision, tuned.reason)
        if self._step("prune what hurts the prompts that are served", "tune", tuning_verdict(tuned)[0]):
            show_tuning(tuned)
        return trained, tuned

    def learn_ranker(self) -> tuple[RankerRun, list[LedgerEntry]]:
        trained = self._run(RankerTraining.prepare)
        shots = trained.metrics.accuracy_by_shots
        fewest, most = min(shots), max(shots)
        told = f"accuracy while training {figure(shots[fewest])} with {fewest} shots, {figure(shots[most])} with {most}"
        if self._step("learn which demonstrations flip answers", "train ranker", told):
            show_ranker(trained)
        misleading = ledger(self.store, misleading=True, limit=LISTED)
        told = ", ".join(f"{entry.id} ({entry.hurt} of {entry.shown})" for entry in misleading)
        title = "list demonstrations that turned right answers wrong"
        if self._step(title, f"flips --misleading -n {LISTED}", told):
            show_ledger(misleading)
        return trained, misleading

    def learn_topics(self) -> tuple[TopicRun | None, list[Gap]]:
        title = "learn which topics queries need and the LLM lacks"
        if not installed("torch"):
            self._step(title, "train topics", "left out: it needs torch, which is not installed")
            return None, []
        trained = self._run(TopicTraining.prepare)
        told = (
            f"{counted(trained.metrics.topics, 'topic')}; {trained.metrics.core_per_example:.1f} core topics "
            "a demonstration"
        )
        if self._step(title, "train topics", told):
            show_topic_training(trained)
        missing = gaps(self.store, self.settings, LISTED)
        told = ", ".join(f"{gap.topic} ({gap.queries} queries)" for gap in missing)
        if self._step("list what to collect next", f"topics --gaps -n {LISTED}", told):
            show_gaps(missing)
        return trained, missing

    def export(self, out: Path) -> ExportReport:
        done = export(self.store, ExportPlan(out=out, force=True), self.monitor)
        self._step("export the curated pool", "export curated.jsonl", counted(done.exported["pool"], "demonstration"))
        return done

    def calibrate(self, folder: Path) -> tuple[SetCalibration, QueryCalibration]:
        """Calibrate questions with ten documents each (the second sample data set), and show one in detail."""
        store = Workspace.create(folder)
        pool, validation = (str(FACTS / "pool" / "*.jsonl"),), (str(FACTS / "validation.jsonl"),)
        index_pool(
            store,
            IndexPlan(paths=pool, validation=validation, encoder=self.settings.encoder),
            self._unread,
        )
        queries = queries_of(store, "validation", CALIBRATED)
        with client_for(store, self.settings, self.monitor) as llm:
            all_of_them = Calibration.prepare(llm, queries, CalibrationPlan(split="validation")).ask(Budget())
            assert isinstance(all_of_them, SetCalibration)
            mended = next((i for i, query in enumerate(all_of_them.queries) if _was_corrected(query)), 0)
            detail = Calibration.prepare(llm, queries[mended : mended + 1], CalibrationPlan()).ask(Budget())
            assert isinstance(detail, QueryCalibration)
        title = "answer questions with documents in rounds, with uncertainty scores"
        right = [found.accuracy for found in next(iter(all_of_them.figures.arms.values())).rounds]
        told = f"right {figure(right[0])} at first, " + ", ".join(map(figure, right[1:])) + " in the rounds"
        if self._step(title, f"calibrate --split validation --limit {CALIBRATED}", told):
            show_calibrations(all_of_them)
        told = f"{detail.query.query} {detail.query.rounds[0].answer} → {detail.query.final}"
        if self._step("show one of them in detail", f"calibrate query {queries[mended].id}", told):
            show_calibration(detail)
        return all_of_them, detail

    def _told(self, event: Event) -> None:
        """Progress of an index, less how its files were understood: they are our own."""
        if event.task != COLUMNS:
            self.monitor.report(event)

    def _run(self, ready: Callable[[LLMClient], PaidWork[R]]) -> R:
        return ready(self.llm).ask(Budget())

    def _step(self, title: str, command: str, told: str) -> bool:
        """Announce a step, and ``told``, what it came to in a line. Returns whether to show all instead."""
        self.steps += 1
        if self.show == "tables":
            show_text(f"\n{self.steps}. {title}", style="bold")
        if self.show != "nothing":
            show_text(f"$ icl-curate {command}", style="dim")
        if self.show == "lines":
            show_text(f"{self.steps}. {title}: {told}")
        return self.show == "tables"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else line[:39] + "…"


def _was_corrected(query: CalibratedQuery) -> bool:
    """Whether the first answer was wrong and the final one right."""
    by_round: dict[int | None, bool | None] = {turn.round: turn.correct for turn in query.rounds}
    return by_round.get(0) is False and by_round.get(query.final_round) is True


def _closing(
    before: EvaluationReport,
    after: EvaluationReport,
    index: IndexReport,
    tuned: TuneReport,
    done: ExportReport,
    keep: bool,
) -> str:
    was, now = (report.methods["dense"].accuracy for report in (before, after))
    rows = [counted(len(tuned.pruned_rows), "row")] if tuned.pruned_rows else []
    pruned = ", ".join([*tuned.pruned, *rows]) or "nothing"
    lines = [
        f"{done.exported['pool']:,} of {counted(index.demonstrations, 'demonstration')} kept; pruned: {pruned}.",
        f"Test accuracy with dense selection: {figure(was)} before, {figure(now)} after.",
        "Answers are from the embedded offline reader, not an LLM: use your own with --llm openai:MODEL or hf:PATH.",
    ]
    if keep:
        lines.append(f"The curated pool is in {done.out}, with its manifest next to it.")
    return "\n".join(lines)


@contextmanager
def _folder(workspace: Path | None) -> Iterator[Path]:
    if workspace is not None:
        yield workspace
        return
    with tempfile.TemporaryDirectory(prefix="icl-curate-demo-") as folder:
        yield Path(folder)
