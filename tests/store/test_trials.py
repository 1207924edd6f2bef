"""Trials and learnt scores as they are kept: what comes back, which run counts, and the table of sources."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import numpy as np
import pytest
from icl_curate.engine.store import runs, trials
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.trials import KIND, SourceSummary, Trials
from icl_curate.engine.store.workspace import Workspace

SIZES = {"a": 5, "b": 3, "c": 4, "never met": 2}
ROWS = [(row, source) for row, source in enumerate(name for name, size in SIZES.items() for _ in range(size))]
REPEATS = {2: 0, 3: 0, 6: 5}
Scores = dict[str, dict[str, float]]


@pytest.fixture
def store(tmp_path: Path) -> Workspace:
    workspace = Workspace.create(tmp_path / "w")
    with workspace.write() as con:
        con.executemany(
            "INSERT INTO demonstrations VALUES (?, ?, 'q', 'a', [], [], '', ?, 'pool', '{}', 'h', 'f', 1,"
            " now()::TIMESTAMP, NULL, NULL)",
            [[row, f"d{row}", source] for row, source in ROWS],
        )
        con.executemany("INSERT INTO duplicates VALUES (?, ?, 'near', 0.9)", [[row, of] for row, of in REPEATS.items()])
    return workspace


def _tried(run: int, seed: int, lists: int = 6) -> Trials:
    """Trials in which neither queries nor rows rise, so that only ``place`` can give their order back."""
    draw = random.Random(seed)
    known = [(row, source) for row, source in ROWS if source != "never met"]
    picked = [(query, *draw.choice(known)) for query in draw.sample(range(100, 200), lists) for _ in range(4)]
    return Trials(
        run,
        np.array([query for query, _, _ in picked], np.int64),
        np.array([row for _, row, _ in picked], np.int64),
        [source for _, _, source in picked],
        [draw.choice(["yes", "no", "", "naïve 'quote'"]) for _ in picked],
        np.array([draw.random() < 0.5 for _ in picked], np.bool_),
    )


def _scores(seed: int) -> Scores:
    draw = random.Random(seed)
    return {name: {s: draw.random() for s in "abc"} for name in ("multilinear", "leave-one-out", "reliability")}


def _finished(
    store: Workspace, seed: int, status: str = "done", kind: str = KIND, lists: int = 6, llm: str = "offline"
) -> tuple[Trials, Scores]:
    tried, scores = _tried(runs.start(store, kind, llm, {}), seed, lists), _scores(seed)
    trials.save(store, tried, scores)
    if status != "running":
        runs.finish(store, tried.run, status, {})
    return tried, scores


def _equal(found: Trials | None, wanted: Trials) -> bool:
    return (
        found is not None
        and (found.run, found.sources, found.answers) == (wanted.run, wanted.sources, wanted.answers)
        and found.queries.tolist() == wanted.queries.tolist()
        and found.rows.tolist() == wanted.rows.tolist()
        and found.right.tolist() == wanted.right.tolist()
    )


def test_nothing_is_known_before_the_first_run(store: Workspace) -> None:
    assert trials.latest(store) is None
    assert trials.weights(store) == {}
    assert [(s.source, s.demonstrations, s.active) for s in trials.source_summaries(store)] == [
        (name, size, size) for name, size in sorted(SIZES.items())
    ]
    assert {(s.weight, s.leave_one_out, s.reliability, s.hits, s.accuracy) for s in trials.source_summaries(store)} == {
        (None, None, None, None, None)
    }


def test_what_is_saved_comes_back_in_its_order(store: Workspace) -> None:
    tried, scores = _finished(store, seed=1)
    assert _equal(trials.latest(store), tried)
    assert trials.weights(store) == scores["multilinear"]
    assert trials.weights(store, "reliability") == scores["reliability"]
    assert trials.weights(store, "no such estimator") == {}


def test_a_smaller_run_replaces_no_larger_one_of_the_same_llm(store: Workspace) -> None:
    larger, _ = _finished(store, seed=1)
    _finished(store, seed=2, lists=2)
    decide(store, "prune", "source", ["a"])
    assert _equal(trials.latest(store), larger)
    assert trials.weights(store) == _scores(1)["multilinear"]
    other, _ = _finished(store, seed=3, lists=2, llm="another")  # its answers are not those of the first LLM
    assert _equal(trials.latest(store), other)
    same, _ = _finished(store, seed=4, lists=2, llm="another")
    assert _equal(trials.latest(store), same)


@pytest.mark.parametrize("status", ["running", "failed", "interrupted"])
def test_only_the_latest_finished_run_counts(store: Workspace, status: str) -> None:
    def counts(tried: Trials, scores: Scores) -> bool:
        weights = {s.source: s.weight for s in trials.source_summaries(store) if s.weight is not None}
        return _equal(trials.latest(store), tried) and trials.weights(store) == weights == scores["multilinear"]

    older = _finished(store, seed=1)
    _finished(store, 2, status)
    _finished(store, 3, kind="evaluate")
    assert counts(*older)
    newer = _finished(store, seed=4)
    assert counts(*newer)
    assert not counts(*older)
    _finished(store, 5, status)
    assert counts(*newer)


def test_standings_are_what_a_count_by_hand_gives(store: Workspace) -> None:
    tried, scores = _finished(store, seed=7)
    decide(store, "prune", "source", ["b"])
    decide(store, "prune", "demonstration", ["d0", "d9"])
    pruned = {row for row, source in ROWS if source == "b"} | {0, 9}
    wanted = []
    for name, size in SIZES.items():
        own = [row for row, source in ROWS if source == name]
        right = [bool(r) for r, source in zip(tried.right, tried.sources, strict=True) if source == name]
        wanted.append(
            SourceSummary(
                source=name,
                weight=scores["multilinear"].get(name),
                leave_one_out=scores["leave-one-out"].get(name),
                reliability=scores["reliability"].get(name),
                demonstrations=size,
                active=sum(row not in pruned for row in own),
                duplicates=sum(row in REPEATS for row in own),
                hits=len(right) or None,
                accuracy=pytest.approx(np.mean(right)) if right else None,  # type: ignore[arg-type]
                kept=name != "b",
            )
        )
    wanted.sort(key=lambda s: (s.weight is None, -(s.weight or 0.0), s.source))
    assert trials.source_summaries(store) == wanted


def test_retired_demonstrations_are_not_counted(store: Workspace) -> None:
    with store.write() as con:
        con.execute("UPDATE demonstrations SET retired_at = now()::TIMESTAMP WHERE source = 'c' OR row = 1")
    assert {s.source: s.demonstrations for s in trials.source_summaries(store)} == {"a": 4, "b": 3, "never met": 2}


def test_a_save_that_fails_keeps_nothing_of_it(store: Workspace) -> None:
    run = runs.start(store, KIND, "offline", {})
    nameless: Scores = {"multilinear": {None: 0.5}}  # type: ignore[dict-item]
    with pytest.raises(duckdb.ConstraintException):
        trials.save(store, _tried(run, 1), _scores(1) | nameless)
    with store.read() as con:
        counts = con.execute("SELECT (SELECT count(*) FROM source_trials), count(*) FROM source_weights").fetchone()
    assert counts == (0, 0)
