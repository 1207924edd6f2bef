"""Drift: false alarms as often as promised, planted changes found, and intervals against known tables."""

from __future__ import annotations

import numpy as np
import pytest
from icl_curate.engine.watch.drift import LEAST, difference_interval, share_changes, two_samples

WIDTH = 6


def _vectors(
    rng: np.random.Generator, count: int, shift: float = 0.0
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    found = rng.normal(size=(count, WIDTH))
    found[:, 0] += shift
    return found.astype(np.float32)


def test_p_is_uniform_without_drift_and_the_change_is_about_nothing() -> None:
    found = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        one = two_samples(_vectors(rng, 30), _vectors(rng, 45), seed, permutations=39)
        assert one is not None
        found.append(one)
    p = np.array([one.p for one in found])
    assert set(np.round(p * 40).astype(int)) <= set(range(1, 41))
    for level in (0.05, 0.1, 0.25, 0.5, 0.75):  # within four standard errors
        assert abs((p <= level + 1e-9).mean() - level) < 4 * np.sqrt(level * (1 - level) / len(p)), level
    assert abs(np.mean([one.changed for one in found])) < 0.02
    assert np.mean([one.low <= 0 <= one.high for one in found]) > 0.85


def test_a_planted_shift_is_found_with_the_size_that_it_has() -> None:
    """Two normal distributions a distance s apart have the total variation distance 2Φ(s/2) − 1."""
    rng = np.random.default_rng(0)
    for shift, distance in ((1.0, 0.383), (2.0, 0.683), (4.0, 0.954)):
        found = two_samples(_vectors(rng, 800, shift), _vectors(rng, 500), 1, permutations=99)
        assert found is not None
        assert found.p == 0.01
        assert found.changed == pytest.approx(distance, abs=0.07)
        assert found.low < distance < found.high


def test_many_queries_make_a_small_change_certain_but_not_large() -> None:
    rng = np.random.default_rng(3)
    found = two_samples(_vectors(rng, 2000, 0.25), _vectors(rng, 2000), 1, permutations=99)
    assert found is not None
    assert found.p == 0.01
    assert 0 < found.changed < 0.15


def test_the_same_seed_gives_the_same_and_too_few_give_nothing() -> None:
    rng = np.random.default_rng(0)
    now, before = _vectors(rng, 40), _vectors(rng, 40)
    assert two_samples(now, before, 5, 19) == two_samples(now, before, 5, 19)
    assert two_samples(now[: LEAST - 1], before) is None
    assert two_samples(now, before[: LEAST - 1]) is None


def test_vectors_that_are_all_alike_are_no_drift() -> None:
    found = two_samples(np.ones((30, 4), np.float32), np.ones((30, 4), np.float32), 0, 19)
    assert found is not None
    assert (found.p, found.changed) == (1.0, 0.0)


def test_difference_intervals_are_those_of_the_literature() -> None:
    """Newcombe 1998, table II, method 10."""
    for counts, wanted in (
        ((56, 70, 48, 80), (0.0524, 0.3339)),
        ((9, 10, 3, 10), (0.1705, 0.8090)),
        ((10, 10, 0, 20), (0.6791, 1.0)),
    ):
        assert difference_interval(*counts) == pytest.approx(wanted, abs=1e-4)


def test_only_shares_that_changed_beyond_chance_are_named_largest_first() -> None:
    names = ["same", "up", "down", "noise", "never"]
    now, before = np.array([100, 96, 10, 6, 0]), np.array([50, 10, 40, 1, 0])
    found = share_changes(names, now, 300, before, 150)
    assert [one.name for one in found] == ["up", "down"]
    assert found[0].difference == pytest.approx(96 / 300 - 10 / 150)
    assert found[0].low > 0 > found[1].high
    assert [one.name for one in share_changes(names, now, 300, before, 150, most=1)] == ["up"]
    assert share_changes(names, now, 300, before * 0, 0) == ()


def test_equal_changes_are_in_the_order_of_their_names() -> None:
    for names in ("ab", "ba"):
        found = share_changes(names, np.array([90, 90]), 100, np.array([10, 10]), 100)
        assert [each.name for each in found] == ["a", "b"]


def test_shares_are_named_wrongly_in_one_of_twenty_comparisons_at_most() -> None:
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.ones(40))
    names = [str(i) for i in range(40)]
    wrong = sum(
        bool(share_changes(names, rng.multinomial(400, chances), 400, rng.multinomial(300, chances), 300))
        for _ in range(200)
    )
    assert wrong <= 20
