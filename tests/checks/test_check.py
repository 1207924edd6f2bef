"""Each kind of fault, planted by hand; and labels on the sample pool against its truth and cleanlab's own defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.commands import Run
from factories.suspects_world import SOUND
from factories.truth import is_wrong
from icl_curate.engine.checks import labels
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.check import (
    check_pool,
    class_findings,
    mojibake,
    outlier_findings,
    refuses,
    text_findings,
)
from icl_curate.engine.checks.labels import (
    STRENGTH,
    Verified,
    against_other_sources,
    fold_of,
    judge_by_trusted,
    judge_labels,
)
from icl_curate.engine.checks.results import CheckReport, Finding
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.pool.records import Demonstration, Task
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.store.decisions import decide, kept_rows, undo
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

LABELS, OPEN = Task("labels", ("a", "b")), Task("open")


def _rows(texts: Sequence[str], outputs: Sequence[str] | None = None) -> list[Demonstration]:
    given = outputs or ["a"] * len(texts)
    return [Demonstration(i, f"r{i}", t, o, "s") for i, (t, o) in enumerate(zip(texts, given, strict=True))]


def _pool(folder: Path, rows: Sequence[Mapping[str, Any]], queries: Sequence[Mapping[str, Any]] = ()) -> Workspace:
    for name, said in (("pool", rows), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in said), encoding="utf-8")
    workspace = Workspace.create(folder / "w")
    test = (str(folder / "queries.jsonl"),) if queries else ()
    index_pool(workspace, IndexPlan(paths=(str(folder / "pool.jsonl"),), test=test))
    return workspace


def _of(report: CheckReport, kind: str) -> dict[str, Finding]:
    return {one.id: one for one in report.rows if one.kind == kind}


def test_duplicates_conflicts_and_leaks_are_told_as_the_index_found_them(tmp_path: Path) -> None:
    rows = [
        *SOUND,
        {"id": "d1", "input": "Where is my parcel today?", "output": "a"},
        {"id": "d2", "input": "where is my  parcel today?", "output": "a"},
        {"id": "c1", "input": "please cancel the order", "output": "a"},
        {"id": "c2", "input": "please cancel the order", "output": "b"},
        {"id": "c3", "input": "Please cancel the order", "output": "b"},
        {"id": "t1", "input": "is this watering can still under warranty after two years", "output": "b"},
    ]
    asked = [{"id": "q1", "input": "Is this watering can still under warranty after two years", "output": "b"}]
    report = check_pool(ActivePool(_pool(tmp_path, rows, asked), Settings()))
    duplicates, conflicts, leaks = (_of(report, kind) for kind in ("duplicate", "conflict", "leak"))
    assert {name: one.suggestion for name, one in duplicates.items()} == {"d2": "keep d1", "c3": "keep c2"}
    assert {name: one.suggestion for name, one in conflicts.items()} == {"c1": "keep c2"}, "two rows against one"
    assert "(1 of 3)" in conflicts["c1"].evidence
    assert set(leaks) == {"t1"} and "the test query q1" in leaks["t1"].evidence
    assert any("not looked for" in note for note in report.notes), "it has no vectors"


def test_of_two_that_contradict_each_other_neither_is_pruned_without_evidence(tmp_path: Path) -> None:
    rows = [*SOUND, *({"id": f"c{i}", "input": "please cancel it", "output": "ab"[i]} for i in range(2))]
    conflicts = _of(check_pool(ActivePool(_pool(tmp_path, rows), Settings()), ["conflict"]), "conflict")
    assert {name: one.suggestion for name, one in conflicts.items()} == {"c0": "review", "c1": "review"}
    assert not any(one.prunes for one in conflicts.values())


def test_broken_texts_are_named_and_sound_ones_are_not() -> None:
    told = {one.id: one.kind for one in text_findings(
        _rows(["?!…", "N/A", "It is cafÃ© time", "lost \ufffd here", "and then [truncated]",
               "As an AI language model, I cannot answer.", "a sound question",
               "Où est le café ? «CAFÉ»", "why… hm..."]),
        LABELS)}  # fmt: skip
    assert told == {"r0": "empty", "r1": "empty", "r2": "mojibake", "r3": "mojibake", "r4": "cut", "r5": "refusal"}


def test_a_text_is_cut_where_many_reach_one_length() -> None:
    piled = [(f"{i} " + "word " * 40)[:120] for i in range(6)]
    assert {one.id for one in text_findings(_rows([*piled, "short"]), LABELS)} == {f"r{i}" for i in range(6)}


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("I'm sorry, but I can't assist with that request.", True),
        ("As an AI, I do not have opinions.", True),
        ("I’m sorry, as an AI language model I must decline", True),
        ("I cannot log in to my account", False),
        ("Sorry, the parcel is late", False),
        ("What is as an AI engineer the best start?", False),
    ],
)
def test_refusals(text: str, refusal: bool) -> None:
    assert refuses(text, answer=True) is refusal


def test_a_person_who_is_unable_to_do_something_refuses_nothing() -> None:
    assert not refuses("I am unable to create an account", answer=False)
    assert refuses("I'm sorry, but I can't help with that.", answer=False)
    assert refuses("I cannot create such a text.", answer=True)


def test_mojibake_says_what_was_meant() -> None:
    assert mojibake("donâ€™t") == ("â€™", "’")
    assert mojibake("größer, naïve, «été», 漢字, Привет") is None


def test_small_classes_are_named_for_review() -> None:
    found = list(class_findings(_rows(["x"] * 9, ["a"] * 6 + ["b"] * 3), 5))
    assert [one.id for one in found] == ["r6", "r7", "r8"] and not any(one.prunes for one in found)


def _clusters(draw: np.random.Generator, classes: int, each: int) -> tuple[Any, list[str]]:
    centres = draw.normal(size=(classes, 32))
    x = np.repeat(centres, each, axis=0) + 0.5 * draw.normal(size=(classes * each, 32))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), [f"c{i // each}" for i in range(len(x))]


def test_the_row_far_from_all_others_is_an_outlier() -> None:
    x, y = _clusters(np.random.default_rng(0), 3, 40)
    x[7] = -x.mean(axis=0) / np.linalg.norm(x.mean(axis=0))
    assert [one.row for one in outlier_findings(_rows(["x"] * len(x), y), x, np.arange(len(x)))] == [7]


def test_rows_with_one_vector_do_not_make_outliers_of_all_others() -> None:
    x, y = _clusters(np.random.default_rng(1), 3, 40)
    x[:80] = x[0]
    x[90] = -x.mean(axis=0) / np.linalg.norm(x.mean(axis=0))
    assert [one.row for one in outlier_findings(_rows(["x"] * len(x), y), x, np.arange(len(x)))] == [90]


def test_wrong_labels_are_found_and_a_rare_class_is_not_judged() -> None:
    x, y = _clusters(np.random.default_rng(1), 4, 40)
    said = [*y[:3], *["c2"] * 5, *y[8:]]
    said[100] = "rare"
    judged = judge_labels(x, said, np.arange(len(x)))
    assert judged and sorted(np.argsort(judged.quality)[:5].tolist()) == [3, 4, 5, 6, 7]
    assert judged.suspect.any() and not np.delete(judged.suspect, range(3, 8)).any()
    assert judged.names[judged.suggested()[3]] == "c0" and judged.labels[100] == -1
    assert judge_labels(x[:41], [*y[:40], "rare"], np.arange(41)) is None, "one class is nothing to choose from"


def test_copies_of_a_wrong_label_do_not_vouch_for_each_other() -> None:
    x, y = _clusters(np.random.default_rng(2), 3, 30)
    x = np.concatenate([x, np.repeat(x[:1], 8, axis=0)])
    groups = np.concatenate([np.arange(90), np.zeros(8, np.int64)])
    said = ["c1", *y[1:], *["c1"] * 8]
    judged = judge_labels(x, said, groups)
    assert judged and judged.suspect[[0, *range(90, 98)]].all()
    folds = fold_of(np.arange(98) % 3, groups)
    assert len(set(folds[groups == 0].tolist())) == 1 and np.bincount(folds).min() > 15


def test_other_sources_judge_a_source_without_its_own_rows() -> None:
    """Against scikit-learn's predictions with one group left out; the last of four sources swaps two labels."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

    x, true = _clusters(np.random.default_rng(5), 3, 80)
    sources = np.arange(len(x)) % 4
    swap = {"c0": "c1", "c1": "c0", "c2": "c2"}
    said = [swap[label] if source == 3 else label for label, source in zip(true, sources, strict=True)]
    groups = np.arange(len(x))
    judged = judge_labels(x, said, groups)
    assert judged
    found = against_other_sources(judged, x, groups, sources)
    model = LogisticRegression(C=STRENGTH, max_iter=200, tol=1e-3)
    apart = cross_val_predict(model, x, said, groups=sources, cv=LeaveOneGroupOut(), method="predict_proba")
    share = (3 / 4) / (3 / 4 + 4 / 5)  # three of four sources taught, and four of five folds
    assert found.probabilities == pytest.approx(share * apart + (1 - share) * judged.probabilities, abs=1e-6)
    assert (found.suspect == judged.suspect).all() and (found.quality == judged.quality).all()
    alone = against_other_sources(judged, x, groups, np.zeros(len(x), np.int64))
    assert (alone.probabilities == judged.probabilities).all(), "there is no other source"


def test_trusted_rows_alone_teach_however_many_others_say_otherwise() -> None:
    """Three of four rows follow another scheme: two labels swapped, the third called by an older name."""
    x, true = _clusters(np.random.default_rng(7), 3, 80)
    trusted = np.arange(len(x)) % 4 == 0
    other = {"c0": "c1", "c1": "c0", "c2": "old"}
    said = [label if kept else other[label] for label, kept in zip(true, trusted.tolist(), strict=True)]
    everyone, judged = judge_labels(x, said, np.arange(240)), judge_by_trusted(x, said, np.arange(240), trusted)
    assert everyone and judged and judged.names == ("c0", "c1", "c2", "old")
    assert (
        np.mean([judged.names[i] == label for i, label in zip(judged.probabilities.argmax(axis=1), true, strict=True)])
        > 0.98
    )
    assert (judged.suspect == ~trusted).mean() > 0.98, "the majority"
    assert (everyone.suspect & trusted).sum() > (everyone.suspect & ~trusted).sum(), "the minority"
    assert not judged.probabilities[:, 3].any(), "no trusted row has the old name"

    few = trusted & (np.cumsum(trusted) <= 9)
    assert judge_by_trusted(x, said, np.arange(240), few) is None, "they are of one label"


def test_verified_labels_tell_which_of_two_conventions_is_right_and_leave_rare_labels_alone() -> None:
    """Three of four rows follow another scheme, as above, and six have a label that no query has."""
    x, true = _clusters(np.random.default_rng(8), 5, 80)
    right = np.arange(len(x)) % 4 == 0
    other = {"c0": "c1", "c1": "c0", "c2": "old", "c3": "c3", "c4": "c4"}
    said = [label if kept else other[label] for label, kept in zip(true, right.tolist(), strict=True)]
    wrong = np.array([label != given for label, given in zip(true, said, strict=True)])
    rows = np.arange(326)  # of the fifth label the first rows alone
    queries = [*range(0, 320, 6)]
    verified = Verified(x[queries] + 0.01, [true[place] for place in queries])
    outputs = [said[place] for place in rows.tolist()]
    judged = judge_labels(x[rows], outputs, np.arange(len(rows)), verified=verified)
    before = judge_labels(x[rows], outputs, np.arange(len(rows)))
    assert judged and before and judged.power and before.power is None
    assert (judged.suspect == wrong[rows]).mean() > 0.95 and not judged.suspect[-6:].any(), "too few to be missed"
    assert (before.suspect & ~wrong[rows]).sum() > (before.suspect & wrong[rows]).sum(), "the minority"
    otherwise = Verified(verified.vectors, [label.upper() for label in verified.labels])
    written = judge_labels(x[rows], outputs, np.arange(len(rows)), verified=otherwise)
    assert written and (written.probabilities == judged.probabilities).all(), "as answers are compared"
    few = Verified(verified.vectors[:9], verified.labels[:9])
    alike = judge_labels(x[rows], outputs, np.arange(len(rows)), verified=few)
    assert alike and (alike.probabilities == before.probabilities).all() and alike.power is None


def test_labels_that_no_query_has_are_believed_as_far_as_new_ones_are_to_come() -> None:
    """Twelve labels of equally many rows, four of them with queries, as after a change of names: two of three rows have
    one that no query has, but of the queries to come few will, as none of the labels was met only once."""
    x, true = _clusters(np.random.default_rng(11), 4, 6)
    names = tuple(f"c{i}" for i in range(12))
    teachers = labels._Teachers.of(Verified(x, true), names, np.full(12, 5))
    assert (
        teachers
        and teachers.unheard.tolist() == [False] * 4 + [True] * 8
        and teachers.share == pytest.approx(1 / 26 / (2 / 3))
    )
    once = Verified(x[:19], true[:19])  # of the fourth label one
    seen = labels._Teachers.of(once, names, np.full(12, 5))
    assert seen and seen.share == pytest.approx(2 / 21 / (2 / 3))
    said = seen._said(x, 0, p := np.full((24, 12), 1 / 12))
    assert said[:, seen.unheard] == pytest.approx(seen.share * p[:, seen.unheard])
    assert said.sum(axis=1) == pytest.approx(1.0)


def test_how_far_the_pool_counts_beside_verified_labels_is_what_makes_these_most_likely() -> None:
    """Against scikit-learn and all mixtures, one by one; the fourth label has no query, and none was expected."""
    from scipy.special import softmax
    from sklearn.linear_model import LogisticRegression

    draw = np.random.default_rng(9)
    x, true = _clusters(draw, 3, 20)
    x += 0.3 * draw.normal(size=x.shape).astype(np.float32)  # hard to tell apart by the queries alone
    y = np.repeat(np.arange(3), 20)
    p = draw.dirichlet(np.ones(4), 100)
    p[40:][np.arange(60), y] += 0.5  # what the pool's classifiers say of the queries is right more often than not
    p /= p.sum(axis=1, keepdims=True)
    teachers = labels._Teachers.of(Verified(x, true), ("c0", "c1", "c2", "rare"), np.array([500, 500, 500, 20]))
    assert teachers and teachers.unheard.tolist() == [False, False, False, True] and (teachers.y == y).all()
    every, folds = np.concatenate([draw.normal(size=(40, 32)), x]), np.r_[np.arange(40) % labels.FOLDS, teachers.folds]
    alone = np.zeros(p.shape)
    for fold in range(labels.FOLDS):
        model = LogisticRegression(C=20.0, max_iter=200, tol=1e-3).fit(
            x[teachers.folds != fold], y[teachers.folds != fold]
        )
        of = folds == fold
        alone[of, :3] = model.predict_proba(every[of]) * (1 - p[of, 3:])
        alone[of, 3] = p[of, 3]
    best, share, power = max(
        (
            np.log(0.97 * softmax(b * np.log(a * p + (1 - a) * alone), axis=1)[40:][np.arange(60), y] + 0.03 / 4).sum(),
            a,
            b,
        )
        for a in np.linspace(0, 1, 21)
        for b in np.geomspace(0.4, 4, 25)
    )
    assert best < 0 < share < 1
    mixed = p.copy()
    assert teachers.join(mixed, every, folds) == pytest.approx(power)
    assert mixed == pytest.approx(share * p + (1 - share) * alone, abs=1e-6)


def test_few_verified_labels_tell_that_the_pool_has_names_that_are_no_longer_used() -> None:
    """Twelve kinds of requests; two of three rows still bear one of six old names, each for two kinds. Of 30 queries
    none has an old name, which may be chance for each of them, but not for all."""
    draw = np.random.default_rng(3)
    x, true = _clusters(draw, 12, 30)
    x += 0.25 * draw.normal(size=x.shape).astype(np.float32)
    old = np.arange(len(x)) % 3 > 0
    said = [f"old{int(label[1:]) // 2}" if was else label for label, was in zip(true, old.tolist(), strict=True)]
    queries = draw.choice(len(x), 30, replace=False)
    verified = Verified(x[queries] + 0.02 * draw.normal(size=(30, 32)).astype(np.float32), [true[at] for at in queries])
    judged = judge_labels(x, said, np.arange(len(x)), verified=verified)
    assert judged
    own = judged.probabilities[np.arange(len(x)), judged.labels]
    assert (own[old] < 0.5).mean() > 0.8 and (own[~old] < 0.5).mean() < 0.4, ((own < 0.5)[old], (own < 0.5)[~old])


@pytest.mark.parametrize("shifted", [True, False])
def test_how_common_labels_are_is_told_by_the_queries_where_this_makes_them_surely_likelier(shifted: bool) -> None:
    """Against the formula, query by query."""
    draw = np.random.default_rng(1)
    x, true = _clusters(draw, 6, 4)
    y = np.repeat(np.arange(6), 4)
    p = draw.dirichlet(np.ones(10), 24)  # four further labels of the pool, that no query has
    p[np.arange(24), y] += 0.3
    if not shifted:
        p[:, 6:] /= 50
    p /= p.sum(axis=1, keepdims=True)
    teachers = labels._Teachers.of(Verified(x, true), tuple(f"c{i}" for i in range(10)), np.full(10, 100))
    assert teachers

    def odds(counted: list[int], more: float) -> Any:
        seen = np.array([sum(y[at] == label for at in counted) for label in range(10)])
        return (seen + more) / (sum(p[at] for at in counted) + more)

    def likelihood(more: float) -> float:
        total = 0.0
        for at in range(24):
            weighed = p[at] * odds([other for other in range(24) if other != at], more)
            total += np.log(weighed[y[at]] / weighed.sum())
        return total

    best = max(labels.ADDED, key=likelihood)
    assert (likelihood(best) - likelihood(1e9) > 3) == shifted
    found = teachers._shift(p, y)
    assert found == pytest.approx(odds([*range(24)], best) if shifted else np.ones(10), abs=1e-3)
    more = labels._Teachers.of(
        Verified(np.tile(x, (2, 1)), true * 2), tuple(f"c{i}" for i in range(10)), np.full(10, 100)
    )
    assert more and (more._shift(p, y) == 1).all(), (
        "there are enough of them to learn from alone, whatever part is asked"
    )
    assert not shifted or (found[6:] < 0.5).all()


def test_copies_in_another_source_do_not_vouch_for_a_row_and_a_class_of_one_source_keeps_its_predictions() -> None:
    x, y = _clusters(np.random.default_rng(6), 3, 40)
    sources = np.where(np.arange(120) >= 80, 0, np.arange(120) % 2)  # only the first has rows of the third class
    judged = judge_labels(x, y, np.arange(120))
    assert judged
    found = against_other_sources(judged, x, np.arange(120), sources)
    assert (found.probabilities[80:] == judged.probabilities[80:]).all()
    assert (found.probabilities[:80] != judged.probabilities[:80]).any(axis=1).all()

    copied = np.arange(120)
    copied[sources == 1] = copied[np.flatnonzero(sources == 0)][: np.count_nonzero(sources == 1)]
    twins = against_other_sources(judged, x, copied, sources)
    assert (twins.probabilities[sources == 1] == judged.probabilities[sources == 1]).all(), "nothing else is left"


def test_suspects_of_the_sample_pool_against_its_truth_and_cleanlab_alone(support: Path) -> None:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import average_precision_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    view = PoolView(Workspace.open(support), Settings())
    rows = view.demonstrations([view.rows.tolist()])[0]
    x, outputs = view.vectors(view.rows), [row.output for row in rows]
    wrong = np.array([is_wrong()[row.id] for row in rows])
    groups = view.indexes.groups[view.rows]
    judged = judge_labels(x, outputs, groups)
    assert judged
    found = judged.suspect
    precision, recall = wrong[found].mean(), found[wrong].mean()
    y = np.unique(outputs, return_inverse=True)[1]
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    alone = cross_val_predict(LogisticRegression(max_iter=200), x, y, cv=folds, method="predict_proba")
    theirs = find_label_issues(y, alone, n_jobs=1)
    ours = average_precision_score(wrong, 1 - judged.quality)
    assert ours >= 0.93 and ours >= average_precision_score(wrong, 1 - get_label_quality_scores(y, alone))
    assert precision >= 0.88 and precision >= wrong[theirs].mean()
    assert recall >= 0.74 and recall >= theirs[wrong].mean()
    right = np.flatnonzero(~wrong)
    clean = judge_labels(x[right], [outputs[i] for i in right], groups[right])
    assert clean and clean.suspect.mean() <= 0.02


def test_accepting_prunes_with_the_evidence_as_reason_and_is_undone(support: Path, run: Run) -> None:
    told = run("check", "-w", support, "--json").json
    suspects = [row for row in told["rows"] if row["kind"] == "label"]
    assert told["kinds"]["label"] == len(suspects) > 100 and told["pruned"] == []
    planned = run("check", "prune", "label", "--dry-run", "-w", support, "--json").json
    assert len(planned["pruned"]) == len(suspects)
    assert run("status", "-w", support, "--json").json["active"] == told["checked"]
    assert "undo with" in run("check", "prune", "label", "-w", support).out
    assert run("status", "-w", support, "--json").json["active"] == told["checked"] - len(suspects)
    reason = run("history", "-w", support, "--json").json["history"][0]["reason"]
    assert reason.startswith("check: label, suggested ") and reason.endswith(" …")
    assert run("undo", "-w", support).code == 0
    assert run("status", "-w", support, "--json").json["active"] == told["checked"]


def test_unknown_kinds_are_refused(support: Path, run: Run) -> None:
    assert run("check", "--kind", "colour", "-w", support).code == 2
    assert run("check", "prune", "colour", "-w", support).code == 2


def test_what_cannot_be_looked_for_is_no_kind_of_which_there_are_none(tmp_path: Path, run: Run) -> None:
    rows = [{"id": f"q{i}", "input": f"question {i}", "output": "ab"[i % 2], "options": ["a", "b"]} for i in range(12)]
    place = ("-w", _pool(tmp_path, rows).path)
    kinds = run("check", *place, "--json").json["kinds"]
    assert kinds["leak"] == 0 and not kinds.keys() & {"label", "mismatch", "style", "class"}
    told = run("check", *place, "--kind", "label,leak,cut").out
    assert "none of: leak, cut" in told and "not looked for where the task is options: label" in told
    assert "not judged: which of the options of a row is the right one" in run("check", *place).out
    bare = tmp_path / "bare"
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps(row) + "\n" for row in SOUND))
    assert run("index", labels, "-w", bare, "--no-encode").code == 0
    told = run("check", "-w", bare, "--kind", "label,leak,outlier").out
    assert "none of: leak\n" in told and "not looked for: label, outlier: " in told


def test_rows_that_were_kept_are_left_out_until_all_are_asked_for(tmp_path: Path, run: Run) -> None:
    rows = [*SOUND, *({"id": f"d{i}", "input": "Where is my parcel today?", "output": "a"} for i in range(3))]
    workspace = _pool(tmp_path, rows)
    decide(workspace, "keep", "demonstration", ["d1"])
    decide(workspace, "keep", "source", [source_of(workspace, "d2")])
    report = check_pool(ActivePool(workspace, Settings()), ["duplicate"])
    assert set(_of(report, "duplicate")) == {"d2"} and report.kinds["duplicate"] == 1 and report.checked == len(rows)
    assert any("1 row with findings left out" in note for note in report.notes)
    place = ("-w", workspace.path, "--json", "--kind", "duplicate")
    assert [one["id"] for one in run("check", *place).json["rows"]] == ["d2"]
    assert {one["id"] for one in run("check", *place, "--all").json["rows"]} == {"d1", "d2"}
    undo(workspace)
    undo(workspace)
    assert kept_rows(workspace).size == 0
    assert set(_of(check_pool(ActivePool(workspace, Settings()), ["duplicate"]), "duplicate")) == {"d1", "d2"}


def source_of(workspace: Workspace, name: str) -> str:
    with workspace.read() as con:
        found = con.execute("SELECT source FROM pool WHERE id = ?", [name]).fetchone()
    assert found is not None
    return str(found[0])
