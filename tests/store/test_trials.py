"""Trials and learnt scores as they are kept: what comes back, which run counts, and the table of sources."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from icl_curate.engine.store import runs, schema, trials, workspace
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
        con.executemany(
            "INSERT INTO duplicates VALUES (?, ?, 'near', 0.9, ?)", [[row, of, row] for row, of in REPEATS.items()]
        )
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


BY_F1 = {"metric": "f1", "least": 0.5, "read": "auto"}


def _run_of(store: Workspace, kind: str, told: dict[str, object], status: str = "done") -> int:
    run = runs.start(store, kind, "offline", {"graded_by": told})
    runs.finish(store, run, status, {})
    return run


def test_a_smaller_run_of_another_grading_is_not_mixed_with_a_larger_one(store: Workspace) -> None:
    larger, _ = _finished(store, seed=1)
    before = {"metric": "accuracy", "least": 1.0, "read": "auto"}  # what runs that do not say are taken for
    tried = replace(_tried(runs.start(store, KIND, "offline", {"graded_by": before}), 2, lists=2), grades=None)
    trials.save(store, tried, _scores(2))
    runs.finish(store, tried.run, "done", {})
    assert _equal(trials.latest(store), larger)
    for told in (BY_F1, {**before, "read": "line"}, {**before, "judge": "offline"}, {**BY_F1, "least": 0.3}):
        other = _tried(runs.start(store, KIND, "offline", {"graded_by": told}), 3, lists=2)
        other = replace(other, grades=np.linspace(0, 1, len(other.rows)))
        trials.save(store, other, _scores(3))
        runs.finish(store, other.run, "done", {})
        found = trials.latest(store)
        assert _equal(found, other) and found is not None
        assert found.values.tolist() == other.values.tolist() != other.right.tolist()
        hits = {row.source: (row.hits, row.accuracy) for row in trials.source_summaries(store) if row.hits}
        for source, told_of in hits.items():
            own = other.values[np.array(other.sources) == source]
            assert told_of == (len(own), pytest.approx(own.mean()))


def test_answers_to_rows_of_another_grading_are_not_mixed(store: Workspace) -> None:
    def answer(told: dict[str, object], rows: list[int], right: bool) -> None:
        nothing = np.full(len(rows), np.nan)
        given = trials.RowAnswers(
            np.array(rows), ["x"] * len(rows), np.full(len(rows), right), nothing, [()] * len(rows)
        )
        trials.save_answers(store, _run_of(store, trials.ROWS, told), given)

    answer({}, [0, 1, 2], True)
    answer(BY_F1, [1], False)
    assert trials.latest_answers(store, zero_shot=True).rows.tolist() == [1]
    answer({"metric": "accuracy"}, [2], False)
    found = trials.latest_answers(store, zero_shot=True)
    assert (found.rows.tolist(), found.right.tolist()) == ([0, 1, 2], [True, True, False])


def test_flips_of_another_grading_are_not_counted_together(store: Workspace) -> None:
    def step(told: dict[str, object], row: int, before: bool, after: bool) -> None:
        run = _run_of(store, trials.RANKER, told)
        told_of = {"run": run, "batch": 0, "query": 0, "place": 1, "row": row, "shown": [row], "score": 0.5}
        answers = {"before": before, "after": after, "answer_before": "a", "answer_after": "b"}
        trials.save_ranker_batch(store, run, 0, {"loss": 0.0}, [told_of | answers])

    step({}, 1, False, True)
    step(BY_F1, 2, True, False)
    assert [(flip.row, flip.helped, flip.hurt) for flip in trials.row_flips(store)] == [(2, 0, 1)]
    step({"metric": "accuracy"}, 3, True, True)
    assert [(flip.row, flip.helped, flip.hurt) for flip in trials.row_flips(store)] == [(1, 1, 0), (3, 0, 0)]


def test_all_answers_of_a_grading_are_read_and_which_have_others_is_said(store: Workspace) -> None:
    exact, by_f1 = ["accuracy", "1.0", "auto", "", "", ""], ["f1", "0.5", "auto", "", "", ""]
    first, _ = _finished(store, seed=1)
    later = _tried(runs.start(store, KIND, "offline", {"graded_by": BY_F1}), 2, lists=2)
    trials.save(store, later, _scores(2))
    runs.finish(store, later.run, "done", {})
    assert _equal(trials.latest(store, exact), first) and _equal(trials.latest(store, by_f1), later)
    assert trials.latest(store, ["f1", "0.3", "auto", "", "", ""]) is None
    assert trials.weights(store, "reliability", exact) == _scores(1)["reliability"]
    assert {row.source: row.reliability for row in trials.source_summaries(store, by_f1) if row.hits} == {
        source: pytest.approx(score) for source, score in _scores(2)["reliability"].items() if source in later.sources
    }
    nothing = np.full(1, np.nan)
    for run, right in ((_run_of(store, trials.ROWS, BY_F1), False), (_run_of(store, trials.ROWS, {}), True)):
        trials.save_answers(store, run, trials.RowAnswers(np.array([0]), ["x"], np.array([right]), nothing, [()]))
    assert trials.latest_answers(store, True, exact).right.tolist() == [True]
    assert trials.latest_answers(store, True, by_f1).right.tolist() == [False]
    prompts = trials.PromptTrials(_run_of(store, trials.PROMPTS, BY_F1), np.array([0]), [[1, 2]], np.array([True]))
    trials.save_prompts(store, prompts)
    assert trials.latest_prompts(store, exact) is None and trials.latest_prompts(store, by_f1) is not None
    _run_of(store, trials.RANKER, {}, status="failed")
    assert trials.graded_otherwise(store, exact) == [trials.LeftOut("train-datamodel", prompts.run, by_f1, 1)]
    assert trials.graded_otherwise(store, by_f1) == []
    others = trials.graded_otherwise(store, ["bleu", "0.5", "auto", "", "", ""])
    both = {(query, row) for tried in (first, later) for query, row in zip(tried.queries, tried.rows, strict=True)}
    assert [(other.kind, other.answers) for other in others] == [
        ("train-datamodel", 1), ("train-rows", 1), ("train-sources", len(both)),
    ]  # fmt: skip


def test_trials_of_an_earlier_release_have_the_values_of_right_and_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:13])
        older.setattr(schema, "VERSION", 13)
        made = Workspace.create(tmp_path / "old")
        run = _run_of(made, KIND, {"depth": 5})
        subsets = _run_of(made, trials.PROMPTS, {})
        with made.write() as con:
            con.execute(
                "INSERT INTO demonstrations SELECT i, 'd' || i, 'q', 'a', [], [], '', 's', 'pool', '{}', 'h', 'f', 1,"
                " now()::TIMESTAMP, NULL, NULL FROM range(2) t(i)"
            )
            con.execute("INSERT INTO source_trials VALUES (?, 0, 9, 0, 's', 'a', true)", [run])
            con.execute("INSERT INTO source_trials VALUES (?, 1, 9, 1, 's', 'b', false)", [run])
            con.execute("INSERT INTO prompt_trials VALUES (?, 9, [0, 1], true)", [subsets])
    workspace._lingering.close()
    opened = Workspace.open(tmp_path / "old")
    found, prompts = trials.latest(opened), trials.latest_prompts(opened)
    assert found is not None and prompts is not None
    assert (found.run, found.answers, found.values.tolist()) == (run, ["a", "b"], [1.0, 0.0])
    assert prompts.values.tolist() == [1.0]
    assert [(row.source, row.accuracy) for row in trials.source_summaries(opened)] == [("s", 0.5)]
