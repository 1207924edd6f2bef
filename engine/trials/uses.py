"""How to use the scores of sources, chosen on the validation lists only.

Uses: ``prune`` drops the lowest sources and takes the vote of the first K kept answers; ``vote`` also weights each vote
by the difference of its source's score to the lowest score; ``reweight`` keeps each source with its weight as
probability and reports the expectation, as the paper's released code does; ``reweight-points`` keeps each retrieved
data point with the weight of its source, as its text says (paper 003, section 3). A choice consists of an estimator, a
use, how much to drop, the number of voters and the decay of a vote with its rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement

import numpy as np

from ..base.arrays import Bools, Float64s, Int64s
from ..base.errors import UsageError, counted
from ..base.progress import SILENT, Event, Monitor
from .estimators import ESTIMATORS, Estimator, default_estimators, learning_estimators
from .lists import RankedLists
from .results import CurvePoint, Setting, Use
from .votes import vote, vote_curve

_Key = tuple[str, Use, float]  # estimator, use, decay
_Tables = dict[_Key, Float64s]

VOTERS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100)
DECAYS = (1.0, 0.95, 0.85, 0.7)
MOST_THRESHOLDS = 256  # one per source up to this number, evenly spaced beyond
REWEIGHTINGS: tuple[Use, ...] = ("reweight", "reweight-points")
SAMPLES = 32  # corpora drawn for the expectation of a reweighting, as in the paper
FOLDS = 5
NOISE = 1.645  # one-sided 5 %: a gain of fewer standard errors counts as noise


@dataclass(frozen=True, slots=True)
class AppliedSetting:
    """A setting with its scores: ``kept`` (C,), ``weights`` (C,) of votes, None if all count equally."""

    setting: Setting
    scores: Float64s
    kept: Bools
    weights: Float64s | None


@dataclass(frozen=True, slots=True)
class SettingChoice:
    """The best setting on validation.

    best: the best setting found, its scores re-estimated on all validation lists.
    passed: whether it is significantly better than keeping every source with ``k`` voters.
    gain, gain_error: the cross-fitted gain in mean utility over keeping everything, and its standard error. A fold has
      no part in the scores and the setting that it judges, nor in the scores by which that setting was chosen.
    baseline: mean utility on validation with every source and ``k`` voters.
    tuned: for each estimator, plain pruning with ``k`` voters and the threshold chosen on the same folds.
    """

    best: AppliedSetting
    passed: bool
    gain: float
    gain_error: float
    baseline: float
    tuned: Mapping[str, AppliedSetting] = field(default_factory=dict)

    @property
    def applied(self) -> AppliedSetting | None:
        """The best setting, or None (keep everything) if it did not pass."""
        return self.best if self.passed else None


def choose(
    lists: RankedLists,
    k: int,
    *,
    estimators: Mapping[str, Estimator] | Sequence[str] | None = None,
    uses: Sequence[Use] = ("prune", "vote", "reweight"),
    voters: Sequence[int] | None = None,
    decays: Sequence[float] = DECAYS,
    folds: int = FOLDS,
    noise: float = NOISE,
    seed: int = 0,
    monitor: Monitor = SILENT,
) -> SettingChoice:
    """Choose estimator, use, threshold, voters and decay by cross-validation over the lists.

    The gain is nested: a fold is judged by a setting that was chosen by cross-validation on the other folds alone, with
    scores that were learnt without it, too. Otherwise the fold takes part in the choice through the scores, and the
    choice passes twice as often as ``noise`` promises if there is nothing to gain. The folds share most of what they
    learn from, so their gains are not quite independent: in simulations the standard error is 4 to 12 % too small, and
    6 to 7 % pass instead of 5 %.

    Thresholds: one candidate per source (up to MOST_THRESHOLDS); sources with equal scores are dropped together. A
    source without validation answers gets its estimator's neutral score. Ties go to fewer dropped sources, fewer voters
    and the setting listed first. The best must gain more than ``noise`` standard errors. Deterministic for a seed.
    Raises UsageError if there are fewer lists than folds.
    """
    check_enough(len(lists), folds)
    named = dict(estimators) if isinstance(estimators, Mapping) else estimators_named(estimators)
    sizes = np.array(sorted({v for v in voters or VOTERS if v <= lists.lengths.max(initial=1)} | {k}), np.int64)
    grid = _Grid(_fractions(lists), sizes, uses, decays)
    fold = np.random.default_rng(seed).permutation(len(lists)) % folds
    held = [lists.take(fold == f) for f in range(folds)]
    total: _Tables = {}
    inner: list[_Tables] = [{} for _ in held]  # what the setting that fold f judges is chosen on
    outer: list[_Learnt] = []
    pairs = list(combinations_with_replacement(range(folds), 2))
    for step, (f, g) in enumerate(pairs):
        monitor.check()
        train = lists.take((fold != f) & (fold != g))
        learnt = _Learnt({name: estimator(train, k) for name, estimator in named.items()}, train.hits)
        if f == g:
            outer.append(learnt)
            _add(total, grid.tables(held[f], learnt))
        else:
            _add(inner[f], grid.tables(held[g], learnt))
            _add(inner[g], grid.tables(held[f], learnt))
        monitor.report(Event("choose", step + 1, len(pairs)))

    gains = np.zeros(len(lists))
    for f, learnt in enumerate(outer):
        elsewhere = grid.best(inner[f])
        fitted = _apply(elsewhere, learnt.scores[elsewhere.estimator], learnt.hits)
        gains[fold == f] = outcomes(held[f], fitted) - vote(held[f], k)
    gain = float(gains.mean())
    error = float(gains.std(ddof=1) / np.sqrt(len(gains)))
    best = grid.best(total)

    whole = {name: estimator(lists, k) for name, estimator in named.items()}
    tuned: dict[str, AppliedSetting] = {}
    for name in named:
        plain: _Key = (name, "prune", 1.0)
        if plain in total:
            tuned[name] = _apply(grid.best({plain: total[plain]}, k), whole[name], lists.hits)
    return SettingChoice(
        best=_apply(best, whole[best.estimator], lists.hits),
        passed=gain > max(0.0, noise * error),
        gain=gain,
        gain_error=error,
        baseline=float(vote(lists, k).mean()),
        tuned=tuned,
    )


def check_enough(questions: int, folds: int = FOLDS) -> None:
    """Raises `UsageError` if there are fewer validation questions than `choose` needs for its folds."""
    if questions < max(2, folds):
        raise UsageError(
            f"{counted(questions, 'validation query', 'is', 'are')} too few for cross-validation",
            f"give at least {max(2, folds)}",
        )


def estimators_named(names: Sequence[str] | None) -> dict[str, Estimator]:
    """The estimators with these names, None for `default_estimators`. Raises `UsageError` for an unknown one."""
    names = default_estimators() if names is None else names
    if unknown := [name for name in names if name not in ESTIMATORS]:
        raise UsageError(f"unknown estimator: {', '.join(unknown)}", f"choose from {', '.join(ESTIMATORS)}")
    return {name: ESTIMATORS[name].scores for name in names}


def outcomes(lists: RankedLists, applied: AppliedSetting) -> Float64s:
    """(N,) utility of each list's answer under a setting; the expectation for a reweighting."""
    setting = applied.setting
    if setting.use in REWEIGHTINGS:
        return expected_votes(
            lists, applied.scores, setting.voters, setting.decay, points=setting.use == "reweight-points"
        )
    return vote(lists, setting.voters, applied.kept, applied.weights, setting.decay)


def expected_votes(
    lists: RankedLists,
    weights: Float64s,
    voters: int,
    decay: float = 1.0,
    samples: int = SAMPLES,
    points: bool = False,
) -> Float64s:
    """(N,) mean utility of the vote over ``samples`` corpora that keep each source with its weight as probability, or
    with ``points`` each item by itself with the weight of its source."""
    sizes = np.array([voters], np.int64)
    return np.asarray(_expected(lists, weights, sizes, decay, points, samples)[0, 0])


def _expected(
    lists: RankedLists,
    weights: Float64s,
    sizes: Int64s,
    decay: float,
    points: bool,
    samples: int = SAMPLES,
) -> Float64s:
    """(1, voters, N) mean utilities over the corpora drawn."""
    if points:  # every item is a source of its own
        weights = weights[lists.sources]
        lists = replace(lists, sources=np.arange(len(weights), dtype=np.int32))
    cut, equal = np.array([1], np.int64), np.ones(len(weights))
    random = np.random.default_rng(0)
    total = np.zeros((1, len(sizes), len(lists)))
    for _ in range(samples):
        kept = (random.random(len(weights)) < weights).astype(np.int64)
        total += vote_curve(lists, kept, cut, sizes, equal, decay)
    return total / samples


def pruning_curve(lists: RankedLists, scores: Float64s, voters: int) -> list[CurvePoint]:
    """A point for each distinct score, from keeping everything upwards."""
    levels, order = np.unique(scores, return_inverse=True)
    votes = vote_curve(lists, order, np.arange(len(levels)), [voters])[:, 0]
    dropped = np.cumsum(np.bincount(order)) - np.bincount(order)
    errors = (votes - votes[0]).std(axis=1) / np.sqrt(max(1, votes.shape[1] - 1))
    columns = (levels.tolist(), dropped.tolist(), votes.mean(axis=1).tolist(), errors.tolist())
    return [CurvePoint(*point) for point in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True)
class _Learnt:
    """Scores by estimator, and how many items each source had in the lists they were learnt on."""

    scores: Mapping[str, Float64s]
    hits: Int64s


@dataclass(frozen=True, slots=True)
class _Grid:
    """The settings that are compared."""

    fractions: Float64s
    sizes: Int64s
    uses: Sequence[Use]
    decays: Sequence[float]

    def tables(self, held: RankedLists, learnt: _Learnt) -> _Tables:
        """Summed utility (fractions, sizes) on the lists ``held``, by estimator, use and decay."""
        return {
            (name, use, decay): _curve(held, scores, learnt.hits, self.fractions, self.sizes, use, decay).sum(axis=2)
            for name, scores in learnt.scores.items()
            for use, decay in _variants(name, self.uses, self.decays)
        }

    def best(self, totals: _Tables, only: int | None = None) -> Setting:
        """The setting with the largest total, of those with ``only`` so many voters if given; the first in a tie."""
        best: tuple[float, Setting] | None = None
        columns = range(len(self.sizes)) if only is None else [int(np.searchsorted(self.sizes, only))]
        for (name, use, decay), table in totals.items():
            seen = table[:, list(columns)]
            row, column = np.unravel_index(int(seen.argmax()), seen.shape)
            value = float(seen[row, column])
            if best is None or value > best[0] + 1e-9:
                voters = int(self.sizes[columns[int(column)]])
                best = value, Setting(name, use, float(self.fractions[row]), voters, decay)
        if best is None:
            raise UsageError("no estimator or no use left to choose from", "give at least one of each")
        return best[1]


def _add(total: _Tables, more: _Tables) -> None:
    for key, table in more.items():
        total[key] = total[key] + table if key in total else table


def _variants(name: str, uses: Sequence[Use], decays: Sequence[float]) -> Iterator[tuple[Use, float]]:
    for use in uses:
        if use in REWEIGHTINGS:
            if name in learning_estimators():
                yield use, 1.0
        else:
            for decay in decays:
                yield use, decay


def _fractions(lists: RankedLists) -> Float64s:
    met = max(1, int((lists.hits > 0).sum()))
    return np.unique(np.linspace(0, met - 1, min(met, MOST_THRESHOLDS)).round()) / met


def _cuts(scores: Float64s, hits: Int64s, fractions: Float64s) -> tuple[Int64s, Int64s]:
    """Dense ranks of the scores, and for each fraction the first rank kept: never more of the known sources than
    requested are dropped, no unknown one above the last of these, and equal scores are never separated."""
    levels, order = np.unique(scores, return_inverse=True)
    below = np.concatenate([[0], np.cumsum(np.bincount(order, hits > 0, len(levels)))])
    allowed = np.floor(fractions * (hits > 0).sum() + 1e-9)
    dropped = below[np.searchsorted(below, allowed, side="right") - 1]
    return order.astype(np.int64), np.searchsorted(below, dropped)


def _curve(
    lists: RankedLists, scores: Float64s, hits: Int64s, fractions: Float64s, sizes: Int64s, use: Use, decay: float
) -> Float64s:
    """(fractions, voters, N) utilities; a reweighting drops nothing and so has only the first fraction, 0."""
    if use in REWEIGHTINGS:
        return _expected(lists, scores, sizes, decay, use == "reweight-points")
    order, cuts = _cuts(scores, hits, fractions)
    return vote_curve(lists, order, cuts, sizes, _vote_weights(scores) if use == "vote" else None, decay)


def _vote_weights(scores: Float64s) -> Float64s:
    """Scores minus the lowest; votes of the lowest source still break ties among themselves."""
    above = scores - scores.min()
    return np.maximum(above, 1e-3 * above.max(initial=0.0)) if above.any() else np.ones_like(scores)


def _apply(setting: Setting, scores: Float64s, hits: Int64s) -> AppliedSetting:
    order, cuts = _cuts(scores, hits, np.array([setting.fraction]))
    kept = order >= cuts[0] if setting.use not in REWEIGHTINGS else np.ones(len(scores), bool)
    return AppliedSetting(setting, scores, kept, _vote_weights(scores) if setting.use == "vote" else None)
