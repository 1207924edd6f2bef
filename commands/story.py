"""The demo: a curation session on the sample data, step by step, with the built-in encoder and reader."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from ..engine.calibrate.calibration import Calibration
from ..engine.calibrate.documents import queries_of
from ..engine.calibrate.results import CalibratedQuery, SetCalibration
from ..engine.calibrate.round_runner import CalibrationPlan
from ..engine.evaluate.compare import Evaluation, EvaluationPlan
from ..engine.export.corpus import ExportPlan, export
from ..engine.index.build import IndexPlan, index_pool
from ..engine.llm.budget import Budget
from ..engine.llm.client import LLMClient, client_for
from ..engine.pool.records import Query
from ..engine.progress import CancelToken, Report
from ..engine.ranker.ledger import ledger
from ..engine.ranker.train import RankerTraining
from ..engine.select.preview import PreviewAsked
from ..engine.settings import Settings
from ..engine.sources.train import SourceTraining, tune
from ..engine.store.decisions import decide
from ..engine.store.trials import source_summaries
from ..engine.store.workspace import Workspace
from ..engine.topics.report import gaps
from ..engine.topics.train import TopicTraining
from ..render.calibration import show_calibrated
from ..render.evaluation import show_evaluation
from ..render.pool import index_rows
from ..render.preview import show_preview
from ..render.ranker import show_ledger, show_ranker
from ..render.sources import show_sources, show_training, show_tuned
from ..render.tables import show_table, show_text
from ..render.topics import show_gaps, show_topic_training

SAMPLE = Path(__file__).parents[1] / "sample_data" / "support"
QUESTION = "my parcel still has not come, where is it?"
FACTS = Path(__file__).parents[1] / "sample_data" / "facts"
CALIBRATED = 40
"""Number of queries of the fact set that the demo calibrates."""

LISTED = 5
"""Number of ledger entries and gaps shown."""

UNTRAINED = ("zero", "random", "bm25", "dense", "dpp", "set-bsr")
TRAINED = ("bm25", "dense", "set-bsr", "ranker", "topick")


def run_demo(workspace: Path | None, report: Report, cancel: CancelToken, show: bool = True) -> dict[str, Any]:
    """Run a session from an unknown pool to an exported one, then calibrate questions with documents.

    Returns the results of each step. Without ``workspace`` a temporary folder is used. Raises what the steps raise.
    """
    settings = Settings()  # the same demo, whatever the user's settings
    with _folder(workspace) as folder:
        session = _Session(Workspace.create(folder), settings, report, cancel, show)
        session.index(
            IndexPlan(
                paths=(str(SAMPLE / "pool" / "*.jsonl"),),
                validation=(str(SAMPLE / "validation.jsonl"),),
                test=(str(SAMPLE / "test.jsonl"),),
                near_duplicate=settings.near_duplicate,
                encoder=settings.encoder,
            )
        )
        session.preview()
        session.evaluate("before", UNTRAINED, "compare selection methods on test")
        session.prune_sources()
        session.learn_ranker()
        session.learn_topics()
        session.evaluate("after", TRAINED, "evaluate again on the test queries, which were not used so far")
        out = folder / "curated.jsonl"
        session.export(out, keep=workspace is not None)
        session.told["workspace"] = str(folder) if workspace else None
        session.calibrate(folder / "facts")
    return session.told


class _Session:
    """The steps, each with the equivalent command; ``told`` collects their results."""

    def __init__(self, store: Workspace, settings: Settings, report: Report, cancel: CancelToken, show: bool) -> None:
        self.store, self.settings, self.report, self.cancel, self.show = store, settings, report, cancel, show
        self.told: dict[str, Any] = {}
        self.steps = 0

    def index(self, plan: IndexPlan) -> None:
        indexed = index_pool(self.store, plan, self.report, self.cancel)
        self.told["index"] = indexed.as_json()
        if self._step("index the pool", "index pool/*.jsonl --validation validation.jsonl --test test.jsonl"):
            show_table(["", ""], index_rows(indexed))
            rows = [[s.source, s.demonstrations, s.duplicates] for s in source_summaries(self.store)]
            show_table(["source", "demonstrations", "duplicates"], rows)

    def preview(self) -> None:
        with self._llm() as llm:
            seen = PreviewAsked(llm, Query(QUESTION)).run(Budget())
        self.told["preview"] = seen.as_json()
        if self._step("preview the demonstrations of a query", f'preview "{QUESTION}" --answer'):
            show_preview(seen)

    def evaluate(self, when: str, methods: tuple[str, ...], title: str) -> None:
        with self._llm() as llm:
            report = Evaluation(llm, EvaluationPlan(methods)).run(Budget())
        self.told[when] = report.as_json()
        if self._step(title, f"evaluate --methods {','.join(methods)}"):
            show_evaluation(report)

    def prune_sources(self) -> None:
        with self._llm() as llm:
            trained = SourceTraining(llm).run(Budget())
        self.told["training"] = trained.as_json()
        if self._step("learn which sources help", "train sources"):
            show_sources(source_summaries(self.store))
            show_training(trained)
        tuned = tune(self.store, self.settings, report=self.report, cancel=self.cancel)
        self.told["tuned"] = tuned.as_json()
        if tuned.pruned:
            decide(self.store, "prune", "source", tuned.pruned, f"run {tuned.run}: {tuned.estimator}")
        if self._step("prune sources that hurt", "prune --tune"):
            show_tuned(tuned)

    def learn_ranker(self) -> None:
        with self._llm() as llm:
            trained = RankerTraining(llm).run(Budget())
        self.told["ranker"] = trained.as_json()
        if self._step("learn which demonstrations flip answers", "train ranker"):
            show_ranker(trained)
        misleading = ledger(self.store, misleading=True, limit=LISTED)
        self.told["misleading"] = [entry.id for entry in misleading]
        if self._step("list demonstrations that turned right answers wrong", f"demos --misleading --limit {LISTED}"):
            show_ledger(misleading)

    def learn_topics(self) -> None:
        with self._llm() as llm:
            trained = TopicTraining(llm).run(Budget())
        self.told["topics"] = trained.as_json()
        if self._step("learn which topics queries need and the LLM lacks", "train topics"):
            show_topic_training(trained)
        found = gaps(self.store, self.settings, LISTED)
        self.told["gaps"] = [gap.as_json() for gap in found]
        if self._step("list what to collect next", f"topics --gaps --limit {LISTED}"):
            show_gaps(found)

    def export(self, out: Path, keep: bool) -> None:
        done = export(self.store, ExportPlan(out, force=True), self.report, self.cancel)
        assert done.written is not None
        self.told["export"] = done.written["counts"]
        if self._step("export the curated pool", "export curated.jsonl"):
            show_text(_closing(self.told, out if keep else None))

    def calibrate(self, folder: Path) -> None:
        """Calibrate questions with ten documents each (the second sample data set), and show one in detail."""
        store = Workspace.create(folder)
        pool, validation = (str(FACTS / "pool" / "*.jsonl"),), (str(FACTS / "validation.jsonl"),)
        index_pool(
            store, IndexPlan(pool, validation=validation, encoder=self.settings.encoder), self.report, self.cancel
        )
        queries = queries_of(store, "validation", CALIBRATED)
        with client_for(store, self.settings, self.report, self.cancel) as llm:
            all_of_them = Calibration(llm, queries, CalibrationPlan(split="validation")).run(Budget())
            assert isinstance(all_of_them, SetCalibration)
            mended = next((i for i, told in enumerate(all_of_them.queries) if _was_mended(told)), 0)
            one = Calibration(llm, queries[mended : mended + 1], CalibrationPlan()).run(Budget())
        self.told["calibration"] = all_of_them.summary()
        self.told["mended"] = one.as_json()
        title = "answer questions with documents in rounds, with uncertainty scores"
        if self._step(title, f"calibrate --validation --limit {CALIBRATED}"):
            show_calibrated(all_of_them)
        if self._step("show one of them in detail", f"calibrate {queries[mended].id}"):
            show_calibrated(one)

    def _llm(self) -> AbstractContextManager[LLMClient]:
        return client_for(self.store, self.settings, self.report, self.cancel)

    def _step(self, title: str, command: str) -> bool:
        """Announce a step. Returns whether to show its result."""
        self.steps += 1
        if self.show:
            show_text(f"\n{self.steps}. {title}", style="bold")
            show_text(f"$ icl-curate {command}", style="dim")
        return self.show


def _was_mended(told: CalibratedQuery) -> bool:
    """Whether the first answer was wrong and the final one right."""
    by_round: dict[int | None, bool | None] = {turn.round: turn.correct for turn in told.rounds}
    return by_round.get(0) is False and by_round.get(told.final_round) is True


def _closing(told: dict[str, Any], out: Path | None) -> str:
    def accuracy(when: str) -> float:
        return float(told[when]["methods"]["dense"]["accuracy"])

    counts = told["export"]
    dropped = ", ".join(told["tuned"]["pruned"]) or "none"
    lines = [
        f"{counts['exported']['pool']:,} of {counts['pool']:,} demonstrations kept; sources dropped: {dropped}.",
        f"Test accuracy with dense selection: {accuracy('before'):.3f} before, {accuracy('after'):.3f} after.",
        "Answers are from the embedded offline reader, not an LLM: use your own with --llm openai:MODEL or hf:PATH.",
    ]
    if out:
        lines.append(f"The curated pool is in {out}, with its manifest next to it.")
    return "\n".join(lines)


@contextmanager
def _folder(workspace: Path | None) -> Iterator[Path]:
    if workspace is not None:
        yield workspace
        return
    with tempfile.TemporaryDirectory(prefix="icl-curate-demo-") as folder:
        yield Path(folder)
