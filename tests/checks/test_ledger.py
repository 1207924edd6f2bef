"""The ledger against counts made by hand, its shrinkage against the closed form, and the planted truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.ranker_world import Scripted, make_world, with_k
from icl_curate.engine.base.arrays import Float64s
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.checks.ledger import false_shares, ledger, net_effects, shrunken_rates, surely_misleading
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.papers.ranker.train import RankerPlan, RankerTraining
from icl_curate.engine.store import decisions, runs
from icl_curate.engine.store.trials import RowFlips, run_figures, save_ranker_batch
from icl_curate.engine.store.trials import flips as flips_of
from icl_curate.engine.store.workspace import Workspace


@pytest.fixture
def small(tmp_path: Path) -> Workspace:
    return make_world(tmp_path / "small", pool=12, validation=4, test=1)


def _rows(world: Workspace, split: str) -> list[int]:
    with world.read() as con:
        return [
            row
            for (row,) in con.execute("SELECT row FROM demonstrations WHERE split = ? ORDER BY row", [split]).fetchall()
        ]


def _steps(run: int, *steps: tuple[int, list[int], bool, bool]) -> list[dict[str, Any]]:
    """Rows of (query, shown, right before, right after)."""
    return [
        {
            "run": run, "batch": 0, "query": query, "place": len(shown), "row": shown[-1], "shown": shown,
            "score": 0.1, "before": before, "after": after, "answer_before": "a", "answer_after": "b",
        }
        for query, shown, before, after in steps
    ]  # fmt: skip


def _book(world: Workspace, *steps: tuple[int, list[int], bool, bool], llm: str = "scripted", done: bool = True) -> int:
    run = runs.start(world, "train-ranker", llm, {"seed": 0})
    save_ranker_batch(world, run, 0, {"loss": 0.5}, _steps(run, *steps))
    if done:
        runs.finish(world, run, "done", {})
    return run


def test_counts_by_hand(small: Workspace) -> None:
    a, b, *_ = _rows(small, "pool")
    q, r, *_ = _rows(small, "validation")
    _book(small, (q, [a], False, True), (q, [a, b], True, False), (r, [a], True, True), (r, [a, b], True, False))
    found = {entry.row: entry for entry in ledger(small)}
    assert [(found[a].shown, found[a].helped, found[a].hurt)] == [(2, 1, 0)]
    assert [(found[b].shown, found[b].helped, found[b].hurt)] == [(2, 0, 2)]
    assert [entry.row for entry in ledger(small, misleading=True)] == [b]
    assert [entry.row for entry in ledger(small, helpful=True)] == [a]
    assert [entry.row for entry in ledger(small, limit=1)] == [b]
    assert found[b].low <= found[b].estimate <= found[b].high
    assert found[b].estimate < found[a].estimate


def test_a_prompt_met_again_counts_once(small: Workspace) -> None:
    a, *_ = _rows(small, "pool")
    q, *_ = _rows(small, "validation")
    for _ in range(3):
        _book(small, (q, [a], True, False), (q, [a], True, False))
    (entry,) = ledger(small)
    assert (entry.shown, entry.hurt) == (1, 1)
    assert len(flips_of(small, a)) == 1


def test_other_llms_and_unfinished_runs_do_not_count(small: Workspace) -> None:
    a, b, *_ = _rows(small, "pool")
    q, *_ = _rows(small, "validation")
    _book(small, (q, [a], True, False), llm="another")
    run = _book(small, (q, [b], False, True))
    _book(small, (q, [a], True, False), done=False)
    assert [entry.row for entry in ledger(small)] == [b]
    assert run_figures(small, run) == [(0, "loss", 0.5)]


def test_flips_show_the_query_and_the_prompt(small: Workspace) -> None:
    a, b, *_ = _rows(small, "pool")
    q, r, *_ = _rows(small, "validation")
    _book(small, (q, [a], False, False), (q, [a, b], False, True), (r, [b], True, False))
    first, second = flips_of(small, b)
    assert (first.query, first.shown, first.helped) == (r, (b,), False)
    assert (second.query, second.shown, second.helped) == (q, (a, b), True)
    assert second.query_input
    assert (second.answer_before, second.answer_after) == ("a", "b")


def test_a_pruned_row_says_so(small: Workspace) -> None:
    a, *_ = _rows(small, "pool")
    q, *_ = _rows(small, "validation")
    _book(small, (q, [a], True, False))
    name = ledger(small)[0].id
    decisions.decide(small, "prune", "demonstration", [name])
    assert ledger(small)[0].pruned


def test_nothing_trained_is_an_empty_ledger(small: Workspace) -> None:
    assert ledger(small) == []
    assert flips_of(small, 0) == []


def test_shrinkage_lies_between_own_and_common_rate() -> None:
    rng = np.random.default_rng(0)
    truth = rng.beta(2, 6, 400)
    trials = rng.integers(1, 30, 400)
    hits = rng.binomial(trials, truth)
    means, variances = shrunken_rates(hits, trials)
    common = hits.sum() / trials.sum()
    raw = hits / trials
    assert np.all((means >= np.minimum(raw, common) - 1e-2) & (means <= np.maximum(raw, common) + 1e-2))
    assert np.mean((means - truth) ** 2) < 0.7 * np.mean((raw - truth) ** 2)
    # the model knows the prior's form: its posterior should be nearly that under the true prior
    oracle = (hits + 2) / (trials + 8)
    assert np.mean(np.abs(means - oracle)) < 0.02
    covered = np.abs(means - truth) <= 1.96 * np.sqrt(variances)
    assert 0.9 <= covered.mean() <= 0.99


def test_more_evidence_narrows_the_interval() -> None:
    effects = [RowFlips(i, str(i), "s", False, n, n // 2, n // 4, 0) for i, n in enumerate([4, 40, 400])]
    estimates, errors = net_effects(effects)
    assert list(errors) == sorted(errors, reverse=True)
    assert np.all(estimates > 0)


def test_the_net_effect_weighs_both_rates_by_the_share_of_right_answers() -> None:
    known = RowFlips(0, "0", "s", False, 40_000, 10_000, 5_000, 3_000)  # so many that the prior counts for little
    (estimate,), (error,) = net_effects([known])
    right, helps, hurts = 0.75, 0.5, 0.1
    assert estimate == pytest.approx((1 - right) * helps - right * hurts, abs=1e-3)
    variance = (1 - right) ** 2 * helps * (1 - helps) / 10_000 + right**2 * hurts * (1 - hurts) / 30_000
    assert error == pytest.approx(variance**0.5, rel=0.02)


def test_planted_ones_are_found(tmp_path: Path) -> None:
    """Even where nothing in the embeddings tells the kinds apart."""
    world = make_world(tmp_path / "w", pool=120, validation=160, test=1, visible=0.0)
    for seed in range(3):
        RankerTraining.prepare(LLMClient(world, Scripted(), with_k(5, seed=seed)), RankerPlan(epochs=2)).ask(Budget())
    shown = [entry.id.split("-")[0] for entry in ledger(world)]
    for kind, found in (
        ("misleading", ledger(world, misleading=True)),
        ("helpful", ledger(world, helpful=True)),
    ):
        right = sum(entry.id.startswith(kind) for entry in found)
        assert right / len(found) >= 0.9
        assert right / shown.count(kind) >= 0.5


def test_where_every_demonstration_costs_accuracy_only_those_that_cost_more_are_misleading(tmp_path: Path) -> None:
    """All turn .3 of the right answers and help as many of the fewer wrong ones, but six, which turn nearly all."""
    world = make_world(tmp_path / "w", pool=60, validation=24, test=1)
    draw, rows, asked = np.random.default_rng(2), _rows(world, "pool"), _rows(world, "validation")
    befores = draw.random((len(rows), len(asked))) < 0.75

    def booked(turned: Float64s) -> None:
        turns = draw.random(befores.shape) < turned[:, None]
        _book(world, *((q, [row], bool(befores[i, j]), bool(befores[i, j] ^ turns[i, j]))
                       for i, row in enumerate(rows) for j, q in enumerate(asked)))  # fmt: skip

    booked(np.full(60, 0.3))
    median = ledger(world)[0].median
    assert median == pytest.approx(0.3 * (0.25 - 0.75), abs=0.03)
    with pytest.raises(UsageError, match=r"more than the median one \(-0\.1"):
        surely_misleading(world)
    with world.write() as con:
        con.execute("DELETE FROM ranker_steps")
    booked(np.where(np.arange(60) < 6, 0.95, 0.3))
    bad = {entry.id for entry in ledger(world) if entry.row in rows[:6]}
    assert set(surely_misleading(world)) == bad


def test_the_shares_of_right_and_wrong_weigh_help_and_harm() -> None:
    """π is the share that was right before: where nearly all were, helping the few wrong ones adds little."""
    helper = RowFlips(1, "a", "s", False, shown=400, wrong_before=200, helped=200, hurt=0)
    rest = RowFlips(2, "b", "s", False, shown=600, wrong_before=0, helped=0, hurt=0)
    (effect, _), _ = net_effects([helper, rest])  # π = .8
    assert effect == pytest.approx(0.2, abs=0.02)
    harmful = RowFlips(1, "a", "s", False, shown=400, wrong_before=200, helped=0, hurt=200)
    (effect, _), _ = net_effects([harmful, rest])
    assert effect == pytest.approx(-0.8, abs=0.02)


def test_false_alarms_are_controlled_over_all_entries() -> None:
    from scipy.special import ndtri

    # Benjamini and Hochberg 1995, section 3.2: of these 15 p-values the four smallest are rejected at q = .05
    smallest = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459]
    p = np.array([*smallest, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0])
    q = false_shares(np.clip(ndtri(p), -9, 9), np.ones(15))
    assert (q <= 0.05).tolist() == [True] * 4 + [False] * 11
    assert q[:2] == pytest.approx([0.0015, 0.003])
