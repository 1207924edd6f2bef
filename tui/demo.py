"""The demo: a curation session on the sample data, told step by step, with the embedded encoder and reader."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..engine.calibrate.calibration import Calibration
from ..engine.calibrate.documents import queries_of
from ..engine.calibrate.walk import CalibrationPlan
from ..engine.evaluate.compare import Evaluation, EvaluationPlan
from ..engine.export.corpus import ExportPlan, export
from ..engine.index.artefacts import encode_for_reader
from ..engine.index.build import IndexPlan, index_pool
from ..engine.llm.asking import backend_for
from ..engine.llm.budget import Budget
from ..engine.pool.records import Query
from ..engine.progress import CancelToken, Report
from ..engine.select.preview import preview
from ..engine.settings import Settings
from ..engine.sources.train import SourceTraining, tune
from ..engine.store.decisions import decide
from ..engine.store.trials import standings
from ..engine.store.workspace import Workspace
from .calibration import show_calibration, show_calibrations
from .plain import show_evaluation, show_preview, show_sources, show_table, show_text, show_training, show_tuned

SAMPLE = Path(__file__).parents[1] / "sample_data" / "support"
QUESTION = "my parcel still has not come, where is it?"
FACTS = Path(__file__).parents[1] / "sample_data" / "facts"
CALIBRATED = 40
"""Queries of the fact set that the demo calibrates."""
METHODS = ("zero", "random", "bm25", "dense", "dpp", "set-bsr")


def run_demo(workspace: Path | None, report: Report, cancel: CancelToken, show: bool = True) -> dict[str, Any]:
    """Index, preview, evaluate, learn, prune, evaluate again, export, calibrate; returns the figures of each step.

    Without ``workspace`` everything happens in a temporary folder. Raises what the steps raise.
    """
    settings = Settings()  # the demo tells one story whatever the user's own settings say
    told: dict[str, Any] = {}
    with _folder(workspace) as folder:
        store = Workspace.create(folder)
        plan = IndexPlan(
            paths=(str(SAMPLE / "pool" / "*.jsonl"),),
            validation=(str(SAMPLE / "validation.jsonl"),),
            test=(str(SAMPLE / "test.jsonl"),),
            near_duplicate=settings.near_duplicate,
            encoder=settings.encoder,
        )
        indexed = index_pool(store, plan, report, cancel)
        told["index"] = indexed.as_json()
        if show:
            _step("1. index the pool", "icl-curate index pool/*.jsonl --validation validation.jsonl --test test.jsonl")
            show_table(["", ""], indexed.lines())
            rows = [[s.source, s.demonstrations, s.duplicates] for s in standings(store)]
            show_table(["source", "demonstrations", "duplicates"], rows)

        seen = preview(store, Query(QUESTION), settings, answer=True, report=report, cancel=cancel)
        told["preview"] = seen.as_json()
        if show:
            _step("2. look at what a query gets", f'icl-curate preview "{QUESTION}" --answer')
            show_preview(seen)

        told["before"] = _evaluate(store, settings, METHODS, report, cancel)
        if show:
            _step("3. compare selection methods on test", f"icl-curate evaluate --methods {','.join(METHODS)}")
            show_evaluation(told["before"])

        told["training"] = _train(store, settings, report, cancel)
        if show:
            _step("4. learn which sources help", "icl-curate train sources")
            show_sources(standings(store))
            show_training(told["training"])

        tuned = tune(store, settings, report=report, cancel=cancel)
        told["tuned"] = tuned.as_json()
        if tuned.pruned:
            decide(store, "prune", "source", tuned.pruned, f"run {tuned.run}: {tuned.estimator}")
        if show:
            _step("5. take out those that hurt", "icl-curate prune --tune")
            show_tuned(tuned)

        told["after"] = _evaluate(store, settings, METHODS, report, cancel)
        if show:
            _step("6. measure again, on queries that played no part in this", "icl-curate evaluate")
            show_evaluation(told["after"])

        out = folder / "curated.jsonl"
        told["export"] = export(store, ExportPlan(out, force=True), report, cancel)["counts"]
        told["workspace"] = str(folder) if workspace else None
        if show:
            _step("7. export what is left", "icl-curate export curated.jsonl")
            show_text(_closing(told, out if workspace else None))

        told |= _calibrate(folder / "facts", settings, report, cancel, show)
    return told


def _calibrate(folder: Path, settings: Settings, report: Report, cancel: CancelToken, show: bool) -> dict[str, Any]:
    """Questions with ten documents each, one of them looked at closely: the second sample data set."""
    store = Workspace.create(folder)
    plan = IndexPlan(
        (str(FACTS / "pool" / "*.jsonl"),), validation=(str(FACTS / "validation.jsonl"),), encoder=settings.encoder
    )
    index_pool(store, plan, report, cancel)
    queries = queries_of(store, "validation", CALIBRATED)
    with backend_for(settings, encode_for_reader(store, settings)) as backend:

        def walk(asked: Sequence[Query], plan: CalibrationPlan) -> dict[str, Any]:
            return Calibration(store, backend, settings, asked, plan, report, cancel).run(Budget())

        all_of_them = walk(queries, CalibrationPlan(split="validation"))
        mended = next((i for i, told in enumerate(all_of_them["queries"]) if _was_mended(told)), 0)
        one = walk(queries[mended : mended + 1], CalibrationPlan())
    if show:
        command = f"icl-curate calibrate --validation --limit {CALIBRATED}"
        _step("8. questions with documents: answer in rounds, with uncertainty scores", command)
        show_calibrations(all_of_them)
        _step("9. one of them closely", f"icl-curate calibrate {queries[mended].id}")
        show_calibration(one)
    return {"calibration": {key: value for key, value in all_of_them.items() if key != "queries"}, "mended": one}


def _was_mended(told: Mapping[str, Any]) -> bool:
    """Wrong at first, right in the end."""
    by_round = {turn["round"]: turn["correct"] for turn in told["rounds"]}
    return by_round.get(0) is False and by_round.get(told["final_round"]) is True


def _evaluate(
    store: Workspace, settings: Settings, methods: tuple[str, ...], report: Report, cancel: CancelToken
) -> dict[str, Any]:
    with backend_for(settings, encode_for_reader(store, settings)) as backend:
        return Evaluation(store, backend, settings, EvaluationPlan(methods), report, cancel).run(Budget())


def _train(store: Workspace, settings: Settings, report: Report, cancel: CancelToken) -> dict[str, Any]:
    with backend_for(settings, encode_for_reader(store, settings)) as backend:
        return SourceTraining(store, backend, settings, report=report, cancel=cancel).run(Budget())


def _closing(told: dict[str, Any], out: Path | None) -> str:
    def accuracy(when: str) -> float:
        return float(told[when]["methods"]["dense"]["accuracy"])

    counts = told["export"]
    dropped = ", ".join(told["tuned"]["pruned"]) or "none"
    lines = [
        f"{counts['exported']['pool']:,} of {counts['pool']:,} demonstrations kept; sources dropped: {dropped}.",
        f"Test accuracy with dense selection: {accuracy('before'):.3f} before, {accuracy('after'):.3f} after.",
        "Answered by the embedded offline reader, a stand-in: choose your own LLM with --llm openai:MODEL or hf:PATH.",
    ]
    if out:
        lines.append(f"The curated pool stands in {out}, its manifest beside it.")
    return "\n".join(lines)


def _step(title: str, command: str) -> None:
    show_text(f"\n{title}", style="bold")
    show_text(f"$ {command}", style="dim")


@contextmanager
def _folder(workspace: Path | None) -> Iterator[Path]:
    if workspace is not None:
        yield workspace
        return
    with tempfile.TemporaryDirectory(prefix="icl-curate-demo-") as folder:
        yield Path(folder)
