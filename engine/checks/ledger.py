"""The ledger: how adding each demonstration to a prompt changed the LLM's answers (paper 000, sections 4 and 6.4).

A demonstration can only help if the answer was wrong before and only hurt if it was right, and it is tried only a few
times. So two rates are estimated for each, θ_help = Pr[right | wrong before] and θ_hurt = Pr[wrong | right before],
both shrunk towards those of all demonstrations (empirical Bayes), and combined with the pool's share π of prompts that
were right before: net effect = (1 − π)·θ_help − π·θ_hurt, the accuracy it adds to an average prompt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..base.arrays import Float64s
from ..base.contract import Reported
from ..base.errors import UsageError
from ..store.trials import Grading, RowFlips, row_flips
from ..store.workspace import Workspace
from .posterior import precision_weights

LEVEL = 1.959964
"""Standard errors of a 95 % interval."""

FALSE = 0.05
"""Share of the rows pruned as misleading that may be false alarms."""

PRECISIONS = np.geomspace(0.5, 500, 25)
"""Candidate precisions of the prior, in observations; they are weighted by their likelihood."""


@dataclass(frozen=True, slots=True)
class LedgerEntry(Reported):
    """A demonstration in the ledger. ``shown``, ``helped`` (wrong → right) and ``hurt`` (right → wrong) count prompts;
    ``estimate`` is the shrunken net effect on accuracy, in [-1, 1], ``low`` to ``high`` its 95 % interval.
    ``q``: the share of false alarms to expect among all entries at least as sure as this one to hurt, and to hurt more
    than the median demonstration, whose net effect is ``median``."""

    row: int
    id: str
    source: str
    pruned: bool
    shown: int
    helped: int
    hurt: int
    estimate: float
    low: float
    high: float
    q: float
    median: float


def ledger(
    workspace: Workspace,
    misleading: bool = False,
    helpful: bool = False,
    limit: int | None = None,
    grading: Grading | None = None,
) -> list[LedgerEntry]:
    """Every demonstration that was shown, most harmful first.

    ``misleading``: only those that hurt more often than they helped; ``helpful``: the opposite, most helpful first.
    ``grading``: by answers that are graded like this, else as the latest finished training. Empty before the first.
    """
    effects = row_flips(workspace, grading)
    if not effects:
        return []
    estimates, errors = net_effects(effects)
    median = float(np.median(estimates))  # not the mean, which those that mislead move
    sure = false_shares(estimates - min(0.0, median), errors)  # below 0 and below the median
    entries = [
        LedgerEntry(
            e.row, e.id, e.source, e.pruned, e.shown, e.helped, e.hurt,
            float(value), max(-1.0, float(value - LEVEL * error)), min(1.0, float(value + LEVEL * error)), float(q),
            median,
        )
        for e, value, error, q in zip(effects, estimates, errors, sure, strict=True)
        if not (misleading and e.hurt <= e.helped) and not (helpful and e.helped <= e.hurt)
    ]  # fmt: skip
    entries.sort(key=lambda entry: (-entry.estimate if helpful else entry.estimate, -entry.shown, entry.row))
    return entries[:limit]


def surely_misleading(workspace: Workspace, grading: Grading | None = None) -> list[str]:
    """Ids of demonstrations not pruned yet of which at most a share of `FALSE` can be expected not to hurt, or to hurt
    no more than the median one: where any demonstration costs accuracy, none is misleading for that. `UsageError` if
    there are none."""
    entries = ledger(workspace, grading=grading)
    sure = [e.id for e in entries if e.hurt > e.helped and e.q <= FALSE and not e.pruned]
    if not entries:
        raise UsageError("no flips are recorded", "icl-curate train ranker")
    if not sure:
        told = "no demonstration hurts significantly by the ledger"
        if (median := entries[0].median) < 0:
            told = f"no demonstration hurts significantly more than the median one ({median:+.3f}) by the ledger"
        raise UsageError(told, "icl-curate flips --misleading")
    return sure


def false_shares(estimates: Float64s, errors: Float64s) -> Float64s:
    """Adjusted p-values (Benjamini and Hochberg 1995) of the one-sided tests that each effect is not below zero, (n,):
    of all with at most q, a share of at most q is expected not to hurt."""
    z = np.divide(estimates, errors, out=np.zeros_like(estimates), where=errors > 0)
    p = np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in z.tolist()], np.float64)  # Φ(z)
    order = np.argsort(p)[::-1]  # from the largest p down
    steps = p[order] * len(p) / np.arange(len(p), 0, -1)  # p(i) n / i
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum.accumulate(np.minimum(steps, 1.0))
    return adjusted


def net_effects(effects: Sequence[RowFlips]) -> tuple[Float64s, Float64s]:
    """Posterior mean and standard deviation of each demonstration's net effect, both (n,)."""
    right_before = [e.shown - e.wrong_before for e in effects]
    total = sum(e.shown for e in effects)
    share = sum(right_before) / total if total else 0.0  # π
    helps, help_variance = shrunken_rates([e.helped for e in effects], [e.wrong_before for e in effects])
    hurts, hurt_variance = shrunken_rates([e.hurt for e in effects], right_before)
    variance = (1 - share) ** 2 * help_variance + share**2 * hurt_variance
    return (1 - share) * helps - share * hurts, np.sqrt(variance)  # (1 − π)·θ_help − π·θ_hurt


def shrunken_rates(hits: Iterable[int], trials: Iterable[int]) -> tuple[Float64s, Float64s]:
    """Mean and variance of each rate (n,) under a beta-binomial model of all of them.

    The prior's mean is the pooled rate; its precision is averaged over `PRECISIONS` by marginal likelihood (flat on the
    logarithm), so that little data neither fixes it nor drives it to an extreme (Gelman et al., Bayesian Data Analysis,
    5.3).
    """
    x, n = np.asarray(list(hits), np.float64), np.asarray(list(trials), np.float64)
    if not x.size:
        return np.empty(0), np.empty(0)
    mean = (x.sum() + 0.5) / (n.sum() + 1)
    pairs, back = np.unique(np.stack([x, n], axis=1), axis=0, return_inverse=True)
    counts = np.bincount(back.ravel(), minlength=len(pairs))
    posterior = precision_weights(pairs[:, 0], pairs[:, 1], np.array([[mean]]), PRECISIONS, counts)
    # (pairs, precisions): a beta posterior for each precision, then their mixture
    count = pairs[:, 1:] + PRECISIONS
    means = (pairs[:, :1] + PRECISIONS * mean) / count
    variances = means * (1 - means) / (count + 1)
    rate = means @ posterior
    variance = (variances + np.square(means)) @ posterior - np.square(rate)
    return rate[back.ravel()], variance[back.ravel()]
