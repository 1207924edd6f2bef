"""How to do it again: the commands behind the stored runs, the decisions, the indexed files and their digests."""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..base.packages import VERSION
from ..curate.plan import KIND as CURATE
from ..curate.results import KIND as TUNE
from ..evaluate.results import KIND as EVALUATE
from ..export.corpus import content_hash
from ..papers.calibrate import stored as rounds
from ..papers.topics import stored as topics
from ..store import ledger, trials
from ..store.decisions import DecisionBatch
from ..store.runs import Run
from ..store.settings import Settings
from ..store.workspace import Workspace
from .measured import parts_of_curations, told
from .results import Decision, FileLine, Reproduction, Step

NAMED = 5
"""Targets of a decision that are named."""

PACKAGES = ("duckdb", "numpy", "openai", "tokenizers", "torch", "transformers")

_SHARED = {field.name: field.default for field in fields(Settings) if field.metadata}


def reproduction(workspace: Workspace, found: Sequence[Run], history: Sequence[DecisionBatch]) -> Reproduction:
    """Everything that is needed to do it again, from the stored runs and the history."""
    with workspace.read() as con:
        files = con.execute("SELECT path, reading, rows, digest FROM files ORDER BY path").fetchall()
        splits: Mapping[str, int] = dict(
            con.execute("SELECT split, count(*) FROM demonstrations WHERE retired_at IS NULL GROUP BY split").fetchall()
        )
    readings = [(path, json.loads(reading)) for path, reading, *_ in files]
    lines = tuple(
        FileLine(path, reading["split"] or "pool", rows, digest)
        for (path, reading), (*_, rows, digest) in zip(readings, files, strict=True)
    )
    parts = parts_of_curations(found)
    steps = tuple(_step(run, parts.get(run.run), splits) for run in found)
    decisions = tuple(_decision(entry) for entry in history)
    return Reproduction(_index(readings), steps, decisions, lines, content_hash(workspace), _versions())


def _index(readings: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The command that reads all files, if one can; the mapping of the first stands for all."""
    if not readings:
        return ""
    words = ["index", *(path for path, reading in readings if reading["split"] not in ("validation", "test"))]
    for path, reading in readings:
        if reading["split"] in ("validation", "test"):
            words += [f"--{reading['split']}", path]
    _, first = next((each for each in readings if each[1]["split"] is None), readings[0])
    for name, column in first["columns"].items():
        words += ["--map", f"{name}={column}"]
    if first["source"]:
        words += ["--source", first["source"]]
    for name in ("validation_fraction", "test_fraction"):
        if first[name]:
            words += [f"--{name.replace('_', '-')}", str(first[name])]
    if first.get("labels"):
        words += ["--labels", ",".join(first["labels"])]
    return _line(words)


def _step(run: Run, part_of: int | None, splits: Mapping[str, int]) -> Step:
    words = _WORDS.get(run.kind, _plain)(run, splits)
    return Step(run.run, run.kind, run.llm, _line(words), _flat(run.settings), part_of, told(run.started_at))


def _flat(had: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without objects among them: the names of the inner ones do not contradict the outer ones."""
    found = {key: one for value in had.values() if isinstance(value, Mapping) for key, one in value.items()}
    return found | {name: value for name, value in had.items() if not isinstance(value, Mapping)}


def _curate(run: Run, splits: Mapping[str, int]) -> list[str]:
    had = run.settings
    if answer := had.get("answer"):
        return ["curate", f"--{answer}"]
    limits = [*_option("--max-calls", had.get("max_calls")), *_option("--max-cost", had.get("max_cost"))]
    flags = ["--propose"] if had.get("propose") else []
    flags += ["--next"] if had.get("one_step") else []
    flags += ["--hold"] if had.get("hold") else []
    noise = _option("--noise", had.get("noise"), 1.645)
    return ["curate", *limits, *_serving(had), *noise, *flags, *_llm(run), "--yes"]


def _tune(run: Run, splits: Mapping[str, int]) -> list[str]:
    some = _limit(run.settings.get("queries"), splits.get("validation"))
    return ["tune", *_serving(run.settings), *some, *_shared(run.settings), *_llm(run)]


def _evaluate(run: Run, splits: Mapping[str, int]) -> list[str]:
    had, split = run.settings, str(run.settings.get("split", "test"))
    methods = _option("-m", ",".join(run.summary.get("methods", ())))
    some = _limit(had.get("queries"), splits.get(split))
    shared = had.get("settings", {})
    return [
        "evaluate", *methods, *_option("-k", had.get("k")), "--split", split, *_option("--seeds", had.get("seeds"), 3),
        *some, *_option("--order", shared.get("order"), "best-last"), *_shared(shared), *_llm(run),
    ]  # fmt: skip


def _sources(run: Run, splits: Mapping[str, int]) -> list[str]:
    had = run.settings
    return [
        "train", "sources", *_option("--depth", had.get("depth"), 50),
        *_option("--ranking", had.get("ranking"), "dense"),
        *_option("--estimator", had.get("estimator"), "multilinear"), *_option("--rate", had.get("rate")),
        *_option("--epochs", had.get("epochs")), *_option("-k", had.get("k")), *_option("--limit", had.get("limit")),
        *_llm(run),
    ]  # fmt: skip


def _rows(run: Run, splits: Mapping[str, int]) -> list[str]:
    first = ["--suspects-first"] if run.settings.get("suspects_first") else []
    return ["train", "rows", *_option("--limit", run.settings.get("limit")), *first, *_llm(run)]


def _ranker(run: Run, splits: Mapping[str, int]) -> list[str]:
    had = run.settings
    if "imported_from" in had:
        return ["train", "ranker", "--from", str(had["imported_from"])]
    return [
        "train", "ranker", *_option("-m", had.get("method"), "ranker"), *_option("--epochs", had.get("epochs"), 5),
        *_option("--trials", had.get("trials")), *_option("--batch", had.get("batch"), 20),
        *_option("--candidates", had.get("ranking")), *_option("--preselect", had.get("candidates")),
        *_option("--temperature", had.get("temperature"), 1.0), *_option("-k", had.get("k")),
        *_option("--seed", had.get("seed"), 0), *_llm(run),
    ]  # fmt: skip


def _topics(run: Run, splits: Mapping[str, int]) -> list[str]:
    had = run.settings
    return [
        "train", "topics", *_option("--questions", had.get("questions")), *_option("--lambda", had.get("cosine"), 1.0),
        *_option("--seed", had.get("seed"), 0), *_llm(run),
    ]  # fmt: skip


def _calibrate(run: Run, splits: Mapping[str, int]) -> list[str]:
    """A run of a split; one of a single query does not store its text."""
    had = run.settings
    keys = ["keys"] if run.kind != rounds.KIND else []
    arms = had.get("arms") or ()
    return [
        "calibrate", *keys, "--split", str(had.get("split") or "validation"), *_option("-r", had.get("rounds")),
        *_option("--arms", ",".join(arms)), *_option("--seed", had.get("seed"), 0), *_llm(run),
    ]  # fmt: skip


def _plain(run: Run, splits: Mapping[str, int]) -> list[str]:
    return [*re.split("[- ]", run.kind, maxsplit=1), *_llm(run)]


_WORDS: Mapping[str, Callable[[Run, Mapping[str, int]], list[str]]] = {
    CURATE: _curate,
    TUNE: _tune,
    EVALUATE: _evaluate,
    trials.KIND: _sources,
    trials.ROWS: _rows,
    ledger.KIND: _ranker,
    "train-promptpg": _ranker,
    topics.KIND: _topics,
    rounds.KIND: _calibrate,
    f"{rounds.KIND} keys": _calibrate,
}
"""By kind of run, the words of its command. What is not given by an option is in the run's settings."""


def _serving(had: Mapping[str, Any]) -> list[str]:
    order = _option("--order", had.get("order"), "best-last")
    return [*_option("-m", had.get("method")), *_option("-k", had.get("k")), *order]


def _shared(had: Mapping[str, Any]) -> list[str]:
    """Options for settings of the LLM that differ from their defaults."""
    names = ("answers", "seed", "prompt_format", "answer_prefix")
    return [
        word for name in names for word in _option(f"--{name.replace('_', '-')}", had.get(name), _SHARED[name])
    ]  # fmt: skip


def _llm(run: Run) -> list[str]:
    return ["--llm", run.llm] if run.llm else []


def _limit(asked: Any, there: int | None) -> list[str]:
    """An option if not all queries were asked."""
    return ["--limit", str(asked)] if isinstance(asked, int) and there is not None and asked < there else []


def _option(name: str, value: Any, default: Any = None) -> list[str]:
    """An option and its value, nothing where that is the default."""
    return [] if value in (None, "", default) else [name, f"{value:g}" if isinstance(value, float) else str(value)]


def _line(words: Sequence[str]) -> str:
    return shlex.join(["icl-curate", *words])


def _decision(entry: DecisionBatch) -> Decision:
    return Decision(
        entry.batch, told(entry.decided_at), entry.who, entry.action, entry.scope, len(entry.targets),
        entry.targets[:NAMED], entry.reason, entry.undone,
    )  # fmt: skip


def _versions() -> dict[str, str]:
    found = {"icl-curate": VERSION, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
