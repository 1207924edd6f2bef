"""The posterior against Bayes by hand, in worlds with a known truth, and on the sample pool against its truth."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from factories.commands import SAMPLE, Run
from factories.truth import is_wrong, true_outputs
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.check import check_pool
from icl_curate.engine.checks.evidence import DOUBTED, PoolEvidence, row_evidence
from icl_curate.engine.checks.labels import judge_labels
from icl_curate.engine.checks.posterior import (
    LOOKS,
    RIGHT,
    SHARE,
    LabelRatio,
    LogRatio,
    correlation,
    fit,
    logistic,
    part_prior,
    score_ratio,
    sharpened,
    source_prior,
    trial_ratio,
)
from icl_curate.engine.curate.candidates import LIKELY
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.store import runs, trials
from icl_curate.engine.store.demonstrations import groups, queries
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from scipy.special import expit, logit
from sklearn.metrics import average_precision_score, roc_auc_score


def test_with_a_fixed_kind_of_evidence_the_posterior_is_bayes() -> None:
    hits = np.array([True, True, False, False, False, True])
    ratio = np.where(hits, np.log(0.2 / 0.9), np.log(0.8 / 0.1))
    fitted = fit(np.arange(6), {"hit": lambda _: ratio})
    share = expit(fitted.prior)
    bayes = (
        share * np.where(hits, 0.2, 0.8) / (share * np.where(hits, 0.2, 0.8) + (1 - share) * np.where(hits, 0.9, 0.1))
    )
    assert np.allclose(fitted.bad, bayes)
    assert np.allclose(logit(fitted.bad), fitted.prior + fitted.parts["hit"]), "the parts add up"


def test_without_evidence_the_prior_stays() -> None:
    fitted = fit(np.array([0, 0, 1, 1, 1]), {})
    assert fitted.bad == pytest.approx(SHARE) and not fitted.parts
    assert not len(fit(np.empty(0, np.int64), {}).bad)
    silent = fit(np.array([0, 1]), {"graded": score_ratio(np.full(2, np.nan)), "trials": _no_trials(2)})
    assert silent.bad == pytest.approx(SHARE)


def _no_trials(count: int) -> LogRatio:
    return trial_ratio(count, np.empty(0, np.int64), np.empty(0, np.bool_))


def test_a_small_source_is_shrunk_towards_all_and_a_row_does_not_vouch_for_itself() -> None:
    sources = np.repeat(np.arange(5), [100, 100, 100, 2, 2])
    bad = np.concatenate([np.zeros(100), np.zeros(100), np.ones(100), [1.0, 1.0], [0.0, 0.0]])
    share = expit(source_prior(bad, sources))
    assert share[0] < 0.05 and share[250] > 0.9
    assert 0.3 < share[300] < share[250] and share[0] < share[302] < 0.3, "two rows say less than a hundred"
    alone = expit(source_prior(np.array([1.0, 0.0, 0.0]), np.array([0, 1, 1])))
    assert alone[0] < 0.5, "the only row of a source has the share of all the others"


def test_a_part_of_a_source_is_shrunk_towards_the_source() -> None:
    """Four sources of ten labels with ten rows of each; the last source mislabels two of its labels."""
    sources, parts = np.repeat(np.arange(4), 100), np.repeat(np.arange(40), 10)
    bad = (parts >= 38).astype(np.float64)
    of_source = source_prior(bad, sources)
    share = expit(part_prior(bad, parts, of_source))
    assert share[parts >= 38].min() > 0.7 and share[(sources == 3) & (parts < 38)].max() < 0.05
    assert share[sources < 3].max() < 0.01
    alone = part_prior(np.array([1.0, 0.0]), np.arange(2), np.array([-1.0, 2.0]))
    assert alone == pytest.approx([-1.0, 2.0]), "a part of one row has the share of its source"


def test_trials_separate_rows_and_a_row_that_is_wrong_more_often_is_never_the_worse_one() -> None:
    draw = np.random.default_rng(0)
    bad = np.arange(300) % 4 == 0
    rows = np.repeat(np.arange(300), 8)
    hits = draw.random(len(rows)) < np.where(bad[rows], 0.1, 0.7)
    fitted = fit(np.zeros(300, np.int64), {"trials": trial_ratio(300, rows, hits)})
    assert average_precision_score(bad, fitted.bad) > 0.95
    turned = fit(np.zeros(300, np.int64), {"trials": trial_ratio(300, rows, ~hits)})
    rate, other = (np.bincount(rows, values) for values in (hits, ~hits))
    for rates, found in ((rate, fitted.bad), (other, turned.bad)):
        order = rates.argsort(kind="stable")
        assert (np.diff(found[order]) <= 1e-9).all(), "direction is fixed, also where most rows are bad"


def test_many_trials_of_one_row_count_for_less_than_those_of_many() -> None:
    rows = np.array([0] * 10 + [1])
    hits = np.zeros(11, np.bool_)
    ratio = trial_ratio(2, rows, hits)(None)
    assert ratio[1] < ratio[0] < 5 * ratio[1]
    assert correlation(rows, np.array([10, 1]), hits * 1.0, np.full(11, 0.5)) == 1.0


def test_a_logistic_regression_finds_the_coefficients_it_was_drawn_with() -> None:
    draw = np.random.default_rng(1)
    x = np.column_stack([np.ones(20_000), draw.normal(size=20_000)])
    y = (draw.random(20_000) < expit(x @ np.array([-1.0, 0.5]))).astype(np.float64)
    assert logistic(x, y, np.ones(20_000), np.zeros(20_000), np.full(2, 0.01)) == pytest.approx([-1.0, 0.5], abs=0.06)


def test_scores_speak_for_a_row_the_more_the_higher_they_are() -> None:
    draw = np.random.default_rng(2)
    bad = np.arange(400) % 5 == 0
    scores = draw.normal(size=400) - 3.0 * bad
    scores[::7] = np.nan
    ratio = score_ratio(scores)(bad.astype(np.float64))
    seen = ~np.isnan(scores)
    order = scores[seen].argsort()
    assert (np.diff(ratio[seen][order]) <= 1e-12).all() and not ratio[~seen].any()
    assert ratio[seen & bad].mean() > 1 and ratio[seen & ~bad].mean() < -1
    fitted = fit(np.arange(400) // 100, {"score": score_ratio(scores)})
    assert average_precision_score(bad[seen], fitted.bad[seen]) > 0.8
    assert score_ratio(np.full(50, 0.5))(np.linspace(0, 1, 50)) == pytest.approx(0, abs=0.05), "equal scores"


def test_label_evidence_is_the_likelihood_of_the_given_label_under_both_classes() -> None:
    draw = np.random.default_rng(3)
    p = draw.dirichlet(np.ones(3), size=500)
    labels = np.array([draw.choice(3, p=q) for q in p])
    labels[0] = -1
    ratio = LabelRatio(p, labels, np.zeros(500, np.int64))(None)
    own = p[np.arange(500), labels]
    assert ratio[0] == 0 and np.corrcoef(ratio[1:], -np.log(own[1:]))[0, 1] > 0.8
    assert ratio[1:][own[1:] > 0.9].max() < 0 < ratio[1:][own[1:] < 0.05].min()


def test_a_source_that_confuses_two_labels_is_found_out() -> None:
    draw = np.random.default_rng(4)
    true = draw.integers(0, 4, 800)
    p = np.full((800, 4), 0.05)
    p[np.arange(800), true] = 0.85
    sources = np.arange(800) % 4
    swapped = (sources == 3) & (true < 2)
    labels = np.where(swapped, 1 - true, true)
    fitted = fit(sources, {"label": LabelRatio(p, labels, sources)})
    assert fitted.bad[swapped].min() > 0.9 and fitted.bad[~swapped].max() < 0.1


def test_what_the_llm_answers_is_bayes_by_how_often_it_is_right() -> None:
    """Against a loop over all true labels, before anything was learnt: then M has `RIGHT` on its diagonal and what is
    wrong falls on labels that look alike, as N does."""
    draw = np.random.default_rng(8)
    p = draw.dirichlet(np.ones(4) / 2, size=200)
    labels, said = draw.integers(0, 4, 200), draw.integers(-1, 4, 200)
    label = LabelRatio(p, labels, np.zeros(200, np.int64))
    told, sharp = label.answered(said)(None), sharpened(p, labels)
    alike = np.zeros((4, 4))
    for row in sharp:
        alike[row.argmax()] += row
    np.fill_diagonal(alike, 0.0)
    confused = (1 - LOOKS) / 3 * (1 - np.eye(4)) + LOOKS * alike / alike.sum(axis=1, keepdims=True)
    answers = np.where(np.eye(4) > 0, RIGHT, (1 - RIGHT) * confused)
    for i, (y, a) in enumerate(zip(labels.tolist(), said.tolist(), strict=True)):
        wrong = [sharp[i, t] * confused[t, y] for t in range(4) if t != y]
        both = [sharp[i, t] * confused[t, y] * answers[t, a] for t in range(4) if t != y]
        wanted = 0.0 if a < 0 else np.log(sum(both) / sum(wrong) / answers[y, a])
        assert told[i] == pytest.approx(wanted, abs=1e-9)
    chances = label.corrections()[1]
    shares = [sharp[0, t] * confused[t, labels[0]] * (answers[t, said[0]] if said[0] >= 0 else 1) for t in range(4)]
    assert chances[0] == pytest.approx(max(shares) / sum(shares), abs=1e-9)


def test_answers_find_the_labels_that_another_classifier_wrote() -> None:
    """Half of the rows have the label that the classifiers believe, wrong in 30 %: these cannot tell, an LLM that is
    right in 70 %, by errors of its own, can."""
    draw = np.random.default_rng(9)
    true = draw.integers(0, 6, 1200)
    believed = np.where(draw.random(1200) < 0.3, draw.integers(0, 6, 1200), true)
    p = np.full((1200, 6), 0.04)
    p[np.arange(1200), believed] = 0.8
    sources = np.arange(1200) % 2
    labels = np.where(sources == 1, believed, true)
    said = np.where(draw.random(1200) < 0.7, true, draw.integers(0, 6, 1200))
    bad = labels != true
    alone = fit(sources, {"label": LabelRatio(p, labels, sources)}).bad
    label = LabelRatio(p, labels, sources)
    both = fit(sources, {"label": label, "own": label.answered(said)}).bad
    written = sources == 1
    assert roc_auc_score(bad[written], alone[written]) < 0.6
    assert roc_auc_score(bad[written], both[written]) > 0.8


def test_the_right_label_of_a_wrong_row_is_bayes_by_its_confusions() -> None:
    """By hand: before anything was learnt, N is the prior, `LOOKS` of it by the probabilities of other rows."""
    draw = np.random.default_rng(6)
    p = draw.dirichlet(np.ones(4) / 2, size=300)
    labels = draw.integers(0, 4, 300)
    labels[:3] = -1
    ratio = LabelRatio(p, labels, np.zeros(300, np.int64))
    found, chances = ratio.corrections()
    assert found[:3].tolist() == [-1] * 3 and not chances[:3].any()
    judged = np.arange(3, 300)
    sharp = sharpened(p[judged], labels[judged])
    alike = np.zeros((4, 4))
    for row in sharp:
        alike[row.argmax()] += row
    np.fill_diagonal(alike, 0.0)
    confusions = 0.8 * alike / alike.sum(axis=1, keepdims=True) + 0.2 * (1 - np.eye(4)) / 3
    for place, row, given in zip(judged, sharp, labels[judged], strict=True):
        joint = np.array([row[true] * confusions[true, given] if true != given else 0.0 for true in range(4)])
        assert found[place] == joint.argmax() and found[place] != given
        assert chances[place] == pytest.approx(joint.max() / joint.sum(), abs=1e-9)


def test_a_rule_that_was_learnt_corrects_better_than_the_classifier(support: Path) -> None:
    """Of the suggestions for the sample pool's suspects more are right than of the classifier's own next label, and of
    those called likely some nine in ten."""
    pool = ActivePool(Workspace.open(support), Settings())
    suspects = row_evidence(pool).suspects()
    judged, true = pool.indexed.label_predictions, true_outputs()
    assert judged is not None
    places = np.searchsorted(pool.indexed.numbers, [row.row for row in suspects])
    plain = [judged.names[other] for other in judged.suggested()[places]]
    right = [true.get(row.id) == row.suggested for row in suspects]
    likely = [one for one, row in zip(right, suspects, strict=True) if row.chance >= LIKELY]
    assert sum(right) > sum(true.get(row.id) == other for row, other in zip(suspects, plain, strict=True))
    assert len(likely) > 250 and np.mean(likely) > 0.88
    assert np.mean(right) < np.mean(likely)


def _figures(found: PoolEvidence) -> tuple[float, float, float]:
    """Average precision, and the share of wrong rows among those of a posterior from .5 and from .9."""
    wrong = np.array([is_wrong()[row.id] for row in found.rows])
    bad = np.array([row.posterior for row in found.rows])
    return float(average_precision_score(wrong, bad)), wrong[bad >= 0.5].mean(), wrong[bad >= 0.9].mean()


SCORES = {"multilinear": {"helpdesk_team": 1.0}}


def _teach_trials(workspace: Workspace) -> None:
    """Trials in which right demonstrations are right in seven of ten, wrong ones in two."""
    draw = np.random.default_rng(5)
    rows = PoolView(workspace, Settings()).rows
    shots = {d.row: d for d in PoolView(workspace, Settings()).demonstrations([rows.tolist()])[0]}
    asked = np.repeat([q.row for q in queries(workspace, "validation")[:60]], 20)
    tried = draw.choice(rows, len(asked))
    right = draw.random(len(asked)) < [0.2 if is_wrong()[shots[row].id] else 0.7 for row in tried.tolist()]
    with runs.recorded(workspace, trials.KIND, "offline", {}) as record:
        named = [shots[row].source for row in tried.tolist()]
        trials.save(workspace, trials.Trials(record.run, asked, tried, named, ["a"] * len(asked), right), SCORES)


def test_suspects_of_the_sample_pool_are_found_better_than_by_labels_alone(support: Path) -> None:
    workspace = Workspace.open(support)
    view = PoolView(workspace, Settings())
    rows = view.demonstrations([view.rows.tolist()])[0]
    label_predictions = judge_labels(view.vectors(view.rows), [r.output for r in rows], groups(workspace)[view.rows])
    assert label_predictions
    alone = average_precision_score([is_wrong()[row.id] for row in rows], 1 - label_predictions.quality)
    found = row_evidence(ActivePool(workspace, Settings()))
    precision, likely, sure = _figures(found)
    assert found.kinds == ("source", "label") and precision >= max(alone, 0.98) and likely >= 0.97 and sure >= 0.99
    assert not found.rows[0].counts
    for row in found.rows[::50]:
        told = 1 / (1 + math.exp(-sum(row.parts.values())))
        assert row.posterior == pytest.approx(told, rel=0.02, abs=1e-6)  # both are rounded
    _teach_trials(workspace)
    taught = row_evidence(ActivePool(workspace, Settings()))
    better, likely, sure = _figures(taught)
    assert taught.kinds == ("source", "label", "trials") and better > precision and likely >= 0.95 and sure >= 0.97
    assert sum(row.counts["trials"] for row in taught.rows) == 1200
    worst = taught.suspects(0.9)
    assert worst[0].posterior >= worst[-1].posterior >= 0.9 and worst[0].suggested and "label +" in worst[0].reason


def test_a_source_that_swaps_two_labels_by_rule_is_found_out_by_the_others(support: Path) -> None:
    """Half of partner_desk's rows have one of two labels, each in the place of the other: classifiers that learn from
    them learn the rule, too, but not those that learn from validation queries."""
    found = row_evidence(ActivePool(Workspace.open(support), Settings()))
    swapped = [row for row in found.rows if row.source == "partner_desk" and is_wrong()[row.id]]
    assert {row.output for row in swapped} == {"refund_request", "refund_status"} and len(swapped) == 65
    suspects = [row for row in found.suspects() if row.source == "partner_desk"]
    right = [row for row in suspects if not is_wrong()[row.id]]
    assert len(suspects) >= 60 and len(right) <= 1
    wrong = sum(is_wrong().values())
    assert sum(row.posterior for row in found.rows) == pytest.approx(wrong, rel=0.2), "as many as are wrong"


def test_taught_by_queries_check_names_what_is_doubted_without_an_answer(support: Path) -> None:
    """Confident learning counts the rows of each label that look like another one: in the sample pool 375 of the 465
    wrong rows and 18 right ones, where the source tells more."""
    from icl_curate.engine.checks.check import CLEARED_BY_SKILLED, check_pool

    workspace = Workspace.open(support)
    report = check_pool(pool := ActivePool(workspace, Settings()), ("label",))
    named = [is_wrong()[found.id] for found in report.rows]
    assert sum(named) >= 445 and len(named) - sum(named) <= 20
    known = {row.id: row for row in row_evidence(pool).rows}
    assert pool.label_predictions
    counted = {row.id for row, suspect in zip(pool.rows, pool.label_predictions.suspect, strict=True) if suspect}
    cleared = {name for name in counted if known[name].posterior < CLEARED_BY_SKILLED}
    doubted = {name for name, row in known.items() if row.posterior >= DOUBTED}
    assert {found.id for found in report.rows} == doubted | counted - cleared
    assert not any(is_wrong()[name] for name in cleared) and len(cleared) > 5
    for found in (one for one in report.rows if one.id in doubted):
        row = known[found.id]
        assert found.suggested == row.suggested
        assert found.numbers["given"] == pytest.approx(1 - row.posterior, abs=1e-4)
        assert found.numbers["suggested"] == pytest.approx(row.posterior * row.chance, abs=1e-3)
    _teach_trials(workspace)
    again = check_pool(ActivePool(workspace, Settings()), ("label",))
    assert again.rows == report.rows, "an answer changes what suspects names, not check"


def test_what_was_pruned_still_tells_of_its_source(support: Path) -> None:
    from icl_curate.engine.store.decisions import decide

    workspace = Workspace.open(support)
    before = ActivePool(workspace, Settings(), teachers=[])
    assert before.label_predictions
    counted = [row.id for row, bad in zip(before.rows, before.label_predictions.suspect, strict=True) if bad]
    decide(workspace, "prune", "demonstration", counted)
    pool = ActivePool(workspace, Settings(), teachers=[])  # verified labels tell it, too
    left = [is_wrong()[row.id] for row in pool.rows]
    assert 0.12 < np.mean(left) < 0.15, "the pool that is left looks clean enough to trust"
    judged = pool.label_predictions
    assert judged
    sources = np.unique([row.source for row in pool.rows], return_inverse=True)[1]
    forgetful = fit(sources, {"label": LabelRatio(judged.probabilities, judged.labels, sources)}).bad
    assert np.count_nonzero(forgetful >= 0.5) <= 2, "by the rows that are left alone hardly one is suspected"

    found = row_evidence(pool)

    assert [row.id for row in found.rows] == [row.id for row in pool.rows], "of the active pool only"
    suspects = found.suspects()
    assert len(suspects) >= 30 and np.mean([is_wrong()[row.id] for row in suspects]) >= 0.85
    assert {row.source for row in suspects} >= {"archive_2019", "community_forum"}, "of which most was pruned"
    assert average_precision_score(left, [row.posterior for row in found.rows]) > 0.1 + average_precision_score(
        left, forgetful
    )


def test_to_make_a_pool_smaller_accuses_nobody(support: Path) -> None:
    from icl_curate.engine.store.decisions import decide

    workspace = Workspace.open(support)
    everything = row_evidence(ActivePool(workspace, Settings()))
    draw = np.random.default_rng(0).permutation(len(everything.rows))
    pruned = [everything.rows[i].id for i in draw[:600].tolist()]
    decide(workspace, "prune", "demonstration", pruned, "fewer rows")
    found = row_evidence(ActivePool(workspace, Settings()))
    precision, likely, sure = _figures(found)
    assert precision >= 0.93 and likely >= 0.93 and sure >= 0.97
    expected = sum(row.posterior for row in found.rows)
    assert expected == pytest.approx(sum(is_wrong()[row.id] for row in found.rows), rel=0.2), "as many as are wrong"


def test_in_a_clean_pool_nothing_worth_naming_is_suspected(support: Path) -> None:
    from icl_curate.engine.store.decisions import decide

    workspace = Workspace.open(support)
    decide(workspace, "prune", "demonstration", [name for name, wrong in is_wrong().items() if wrong], "wrong")
    found = row_evidence(ActivePool(workspace, Settings()))
    # the pruned rows tell that some labels of their sources are mostly wrong
    assert len(found.rows) == 735 and len(found.suspects()) <= 0.015 * 735 and len(found.suspects(0.9)) <= 2


def test_pruning_suspects_gives_each_its_evidence_and_is_undone(support: Path, run: Run) -> None:
    listed = run("suspects", "-n", "3", "-w", support, "--json").json["demonstrations"]
    assert [row["posterior"] for row in listed] == sorted((row["posterior"] for row in listed), reverse=True)
    row = run("suspects", "show", listed[0]["id"], "-w", support, "--json").json
    assert {name: row[name] for name in listed[0]} == listed[0]
    shown = run("suspects", "show", listed[0]["id"], "-w", support).out
    assert "classifiers trained without the row" in shown and f"likely to hurt: {row['posterior']:.3f}" in shown
    planned = run("suspects", "prune", "--dry-run", "-w", support, "--json").json
    assert listed[0]["id"] in planned["targets"] and planned["dry_run"]
    done = run("suspects", "prune", "-w", support, "--json").json
    assert done["targets"] == planned["targets"] and done["active_after"] == 1200 - len(done["targets"])
    reason = run("history", "-w", support, "--json").json["history"][0]["reason"]
    assert reason.startswith("suspect: ")
    assert run("suspects", "show", listed[0]["id"], "-w", support).code == 2, "it is not active any more"
    assert run("undo", "-w", support, "--json").json["active_after"] == 1200
    assert run("suspects", "prune", "--sure", "0.999999", "-w", support).code == 2
    assert run("suspects", "prune", "--misleading", "-w", support).code == 2
    one = run("suspects", "--source", "archive_2019", "-n", "2", "-w", support).out
    assert "archive_2019" in one and "crowd_batch" not in one


def test_a_label_that_classifiers_predict_too_seldom_does_not_make_all_its_rows_bad() -> None:
    """Nothing is wrong. Rows with label 3 look like those with label 0 more than like their own."""
    draw = np.random.default_rng(10)
    labels = draw.choice(4, 800, p=[0.4, 0.3, 0.22, 0.08])
    p = draw.dirichlet(np.ones(4), 800) * 0.3 + 0.7 * np.eye(4)[labels]
    rare = labels == 3
    p[rare] = draw.dirichlet([6, 1, 1, 3], int(rare.sum()))
    sources = np.arange(800) % 3
    within = np.unique(np.stack([sources, labels], axis=1), axis=0, return_inverse=True)[1].ravel()
    twice, once = (
        fit(sources, {"label": LabelRatio(p, labels, sources, 1.0, of_label=told)}, within).bad
        for told in (False, True)
    )
    assert twice[rare].mean() > 0.9, "where what a label says counts again beside the prior of its rows"
    assert once[rare].max() < 0.5 and once.mean() < 0.05


def test_a_rare_label_that_is_hard_to_tell_is_not_named(tmp_path: Path, run: Run) -> None:
    """A quarter of the sound rows of five intents is marked as urgent, which their texts do not say."""
    files = sorted((SAMPLE / "support" / "pool").glob("*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if not is_wrong()[row["id"]]]
    draw, some = random.Random(0), sorted({row["output"] for row in rows})[:5]
    for row in rows:
        row["output"] += "_urgent" if row["output"] in some and draw.random() < 0.25 else ""
    (tmp_path / "pool.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    run("index", tmp_path / "pool.jsonl", "-w", tmp_path / "w")
    named = {one.id for one in check_pool(ActivePool(Workspace.open(tmp_path / "w"), Settings()), ("label",)).rows}
    urgent = {row["id"] for row in rows if row["output"].endswith("_urgent")}
    assert len(urgent) > 40 and not named & urgent


def test_rows_that_the_curator_judged_are_suspects_no_more(support: Path, run: Run) -> None:
    place = ("-w", support)
    worst = run("suspects", "-n", 3, "--json", *place).json["demonstrations"]
    assert run("keep", worst[0]["id"], *place).code == 0
    left = run("suspects", "-n", 2, "--json", *place).json
    assert [row["id"] for row in left["demonstrations"]] == [row["id"] for row in worst[1:]]
    assert "left out: 1 row that you kept or relabelled" in left["notes"]
    pruned = run("suspects", "prune", "--dry-run", "--json", *place).json["targets"]
    assert f"{len(pruned)} of them at .9 or more" in run("suspects", *place).out and worst[0]["id"] not in pruned
