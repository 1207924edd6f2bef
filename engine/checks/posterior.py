"""The probability that each row is bad, from several kinds of evidence: a mixture of two classes, fitted by EM.

A row is good or bad. The share of bad rows of a source has a Beta prior, whose mean and precision are learnt from all
sources; so has that of a part of a source, its rows of one label, with the share of the source as its mean. Given the
class, the kinds of evidence are independent. Each kind is a function from the current probabilities of being bad (n,)
to its log-likelihood ratio of bad against good (n,), fitted anew in every round; None asks for a first guess. The
direction of each kind is fixed (a higher quality or more right answers never speak for bad), so the classes cannot
change places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ..base.arrays import Bools, Float64s, Int64s
from .labels import LEAST, sharper

Kind = TypeVar("Kind", bound=str)

LogRatio = Callable[[Float64s | None], Float64s]

SHARE, SHARE_WEIGHT = 0.1, 10.0
"""Mean of the prior of the share of bad rows in a pool, and its weight in rows."""

PRECISIONS = np.geomspace(1.0, 300.0, 15)
"""Candidate precisions of the shares of sources, in rows; they are weighted by their likelihood."""

MOST_COUNTED = 20.0
"""Other rows of a source, or of its rows of one label, that count for a row's prior: a source may be good in one place
and bad in another."""

ROUNDS, CHANGE = 200, 1e-4
"""Maximum rounds of EM; it stops when no probability changes by more than this."""

SHARPNESS = np.geomspace(0.4, 4.0, 25)
"""Candidate exponents of the classifier's probabilities; strong penalties make them too even."""

ALIKE = 0.2
"""Least correlation of two trials of one row: what a row is about matters in all of them, and the classes must not be
taken to explain that."""

TOP, MOST_CELLS, MOST_FITTED = 10, 1 << 20, 20_000
"""Classes taken one by one for each row; cells of all tables of confusions, so that the largest sources have their own
and the others share one; rows on which the exponent is chosen."""

PULL, LOOKS = 10.0, 0.8
"""Weight of the prior of a class's confusions, in rows; share of them that fall on classes that look alike."""

RIGHT, RIGHT_WEIGHT = 0.8, 20.0
"""Mean of the prior of how often the LLM answers a row's own input rightly, and its weight in answers."""

GUESS = -1.5
"""First guess: how much less likely a bad row is to have a hit, in log odds."""

SPREAD = 1.5
"""Standard deviation of the prior of that difference."""

BINS, BIN_ROWS, PSEUDO = 20, 10, 2.0
"""Bins of a score: at most, rows of each at least, and rows of each class added to each bin."""


@dataclass(frozen=True, slots=True)
class Posterior:
    """``bad`` (n,): probabilities; ``prior`` (n,): log odds of each row by its source without the row itself, and
    ``parts`` (n,) each: log-likelihood ratios. The prior and the parts add up to the log odds of ``bad``."""

    bad: Float64s
    prior: Float64s
    parts: Mapping[str, Float64s]


def fit(
    sources: Int64s,
    kinds: Mapping[str, LogRatio],
    within: Int64s | None = None,
    start: Float64s | None = None,
) -> Posterior:
    """The posterior of rows with ``sources`` (n,) and the parts ``within`` them (n,), both indices from 0. ``start``
    (n,): probabilities that are known to be nearer than the same `SHARE` for every row; EM finds the nearest optimum.
    """
    from scipy.special import expit

    def prior_of(bad: Float64s) -> Float64s:
        of_source = source_prior(bad, sources)
        return of_source if within is None else part_prior(bad, within, of_source)

    bad = np.full(len(sources), SHARE)
    prior = prior_of(bad)
    parts = {name: kind(None) for name, kind in kinds.items()}
    if start is not None:
        bad = start
        prior, parts = prior_of(bad), {name: kind(bad) for name, kind in kinds.items()}
    for _ in range(ROUNDS if kinds else 0):
        before, bad = bad, expit(prior + sum(parts.values()))  # E: the odds of bad are the prior's times all ratios
        if np.abs(bad - before).max(initial=0.0) < CHANGE:
            break
        prior = prior_of(bad)  # M: the shares and each kind of evidence, given who is bad
        parts = {name: kind(bad) for name, kind in kinds.items()}
    return Posterior(expit(prior + sum(parts.values())), prior, parts)


def source_prior(bad: Float64s, sources: Int64s) -> Float64s:
    """Log odds (n,) of a row being bad by the other rows of its source."""
    mean = (bad.sum() + SHARE * SHARE_WEIGHT) / (len(bad) + SHARE_WEIGHT)
    return _by_others(bad, sources, np.full(len(bad), mean))


def part_prior(bad: Float64s, parts: Int64s, of_source: Float64s) -> Float64s:
    """Log odds (n,) of a row being bad by the other rows of its part of the source; where there are none, these are the
    log odds by its source (n,)."""
    from scipy.special import expit

    return _by_others(bad, parts, expit(of_source))


def _by_others(bad: Float64s, of: Int64s, mean: Float64s) -> Float64s:
    """Log odds (n,) of a row being bad by the others of its group, numbered ``of`` (n,) from 0: the share of each
    group has a Beta prior with the ``mean`` (n,) of its rows, and a precision that all groups share."""
    from scipy.special import logit

    if not len(bad):
        return np.empty(0)
    n, x, total = (np.bincount(of, weights).astype(np.float64) for weights in (np.ones(len(bad)), bad, mean))
    means = np.clip(total / np.maximum(n, 1.0), LEAST, 1 - LEAST)[:, None]
    weights = precision_weights(x, n, means, PRECISIONS, np.ones(len(n)))
    others, count = (x[of] - bad)[:, None], (n[of] - 1)[:, None]  # without the row itself
    counted = np.minimum(count, MOST_COUNTED) / np.maximum(count, 1.0)
    # the mean of the Beta posterior for each precision, then their mixture
    shares = (PRECISIONS * mean[:, None] + others * counted) / (PRECISIONS + count * counted)
    return np.asarray(logit(np.clip(shares @ weights, LEAST, 1 - LEAST)))


def precision_weights(
    x: Float64s, n: Float64s, means: Float64s, precisions: Float64s, counts: Float64s | Int64s
) -> Float64s:
    """How likely each of the ``precisions`` (p,) of a Beta prior with ``means`` (g, 1) makes ``x`` hits in ``n`` trials
    (g,), each seen ``counts`` (g,) times: shares of 1, (p,)."""
    from scipy.special import betaln

    a, b = precisions * means, precisions * (1 - means)
    # of each precision the log of Π B(a + x, b + n − x) / B(a, b)
    likelihood = (counts[:, None] * (betaln(a + x[:, None], b + (n - x)[:, None]) - betaln(a, b))).sum(axis=0)
    weights = np.exp(likelihood - likelihood.max())
    return np.asarray(weights / weights.sum())


class LabelRatio:
    """Labels against a classifier's probabilities p (n, classes); rows with label -1 have no evidence.

    A good row has its true label; a bad one of true label t has y ≠ t with probability N[t, y], the confusions of its
    source. So the ratio is Σ p[t] N[t, y] / p[y] over t ≠ y. N is learnt: shrunk to that of all sources, and that to
    classes that look alike. ``power`` as in `sharpened`.

    ``of_label``: the prior is that of a source's rows with the label y, which knows what y says by itself. Then the
    ratio is that of the inputs alone: it is divided by the same of the mean p̄ of all rows, Σ p̄[t] N[t, y] / p̄[y].
    If it counted twice, all rows of a label that classifiers predict too rarely would be taken for bad.
    """

    def __init__(
        self,
        probabilities: Float64s,
        labels: Int64s,
        sources: Int64s,
        power: float | None = None,
        of_label: bool = False,
    ) -> None:
        self._count, self._judged = len(labels), np.flatnonzero(labels >= 0)
        given, classes = labels[self._judged], probabilities.shape[1]
        self._given = given
        p = sharpened(probabilities[self._judged], given, power)
        self._own = p[np.arange(len(given)), given]  # p[y]
        self._even, self._mean = _expected(p), p.mean(axis=0) if of_label and len(given) else None
        p[np.arange(len(given)), given] = 0.0
        self._top = np.argpartition(-p, min(TOP, classes) - 1, axis=1)[:, :TOP]
        self._others = np.take_along_axis(p, self._top, axis=1)  # p[t] of the likeliest t ≠ y
        self._rest = (1 - self._own - self._others.sum(axis=1)) / max(classes - 1, 1)
        self._slots = slots = _slots(sources[self._judged], max(MOST_CELLS // classes**2, 1) - 1)
        cells = (slots.max(initial=0) + 1, classes, classes)
        self._at = (slots[:, None] * classes + self._top) * classes + given[:, None]
        self._confused = np.broadcast_to(self._even, cells)
        self._said, self._said_rest = np.ones(self._others.shape), np.ones(len(given))

    def __call__(self, bad: Float64s | None) -> Float64s:
        """See `LogRatio`."""
        if bad is not None:
            # how much of each bad row was of each true label: its expected confusions, which make N anew
            share = self._shares * bad[self._judged][:, None]
            counts = np.bincount(self._at.ravel(), share.ravel(), self._confused.size).astype(np.float64)
            self._confused = _confusions(counts.reshape(self._confused.shape), self._even)
        ratios = np.zeros(self._count)
        # Σ p[t] N[t, y] / p[y]
        ratios[self._judged] = np.log(self._values.sum(axis=1) + self._rest) - np.log(self._own)
        if (mean := self._mean) is not None:
            confused = np.log(mean @ self._confused) - np.log(mean)  # Σ p̄[t] N[t, y] / p̄[y], of each source and y
            ratios[self._judged] -= confused[self._slots, self._given]
        return ratios

    def corrections(self) -> tuple[Int64s, Float64s]:
        """The most probable true label of each row if its own is wrong, (n,), and its probability then, (n,):
        p[t] N[t, y], with the confusions last learnt, over their sum. -1 and 0 for rows without evidence. A row to
        which no label applies has one, too: most often an improbable one."""
        shares, rows = self._shares, np.arange(len(self._judged))
        best = shares.argmax(axis=1)
        labels, chances = np.full(self._count, -1, np.int64), np.zeros(self._count)
        labels[self._judged] = self._top[rows, best]
        chances[self._judged] = shares[rows, best]
        return labels, chances

    def answered(self, said: Int64s) -> LogRatio:
        """The LLM's answers to the rows' own inputs, ``said`` (n,), as indices of classes; -1 without an answer.

        An answer a to a row of true label t has the probability M[t, a]: how often the LLM is right, and which classes
        it takes for each other, is learnt from what all other evidence says of the rows, so that no answer vouches for
        itself. Given the label y and the classifiers, the ratio is that of Σ p[t] N[t, y] M[t, a] over t ≠ y, as a
        share of the same without M, to M[y, a].
        """
        from scipy.special import expit, logit

        rows = np.flatnonzero(said[self._judged] >= 0)
        places, top, given, a = self._judged[rows], self._top[rows], self._given[rows], said[self._judged][rows]
        ratios, even = np.zeros(self._count), self._even

        def ratio(bad: Float64s | None) -> Float64s:
            values, rest = self._values[rows], self._rest[rows]
            ill = values.sum(axis=1) + rest  # Σ p[t] N[t, y]
            counts = np.zeros(even.shape)
            if bad is not None:
                hurt = expit(logit(np.clip(bad[places], LEAST, 1 - LEAST)) - ratios[places])
                np.add.at(counts, (given, a), 1 - hurt)
                np.add.at(counts, (top, a[:, None]), values * (hurt / ill)[:, None])
            told = _answer_chances(counts, even)
            self._said[rows], self._said_rest[rows] = told[top, a[:, None]], told.mean(axis=0)[a]
            both = (values * self._said[rows]).sum(axis=1) + rest * self._said_rest[rows]
            ratios[places] = np.log(both / ill) - np.log(told[given, a])
            return ratios.copy()

        return ratio

    @property
    def _shares(self) -> Float64s:
        """The probability of each of the `TOP` other labels if the row's own is wrong, (judged, TOP), by the
        classifiers, the confusions and the LLM's answers."""
        values = self._values * self._said
        return np.asarray(values / np.maximum(values.sum(axis=1) + self._rest * self._said_rest, LEAST)[:, None])

    @property
    def _values(self) -> Float64s:
        """p[t] N[t, y] of the `TOP` other labels t of each row judged, (judged, TOP)."""
        return np.asarray(self._others * self._confused.ravel()[self._at])


def sharpened(probabilities: Float64s, labels: Int64s, verified: float | None = None) -> Float64s:
    """Probabilities (n, classes) raised to the power under which the ``labels`` are most likely, some share of them
    being wrong, and mixed with `FLOOR` of equal shares.

    ``verified`` is the power by verified labels, if there are some. Wrong labels that classifiers predict, as those of
    other classifiers, make the one by the labels too small; queries that are easier than rows make the other too
    large. So theirs is the geometric mean."""
    classes = probabilities.shape[1]
    part = np.linspace(0, len(labels) - 1, min(len(labels), MOST_FITTED)).astype(np.int64)
    given, fitted = (np.arange(len(part)), labels[part]), probabilities[part]
    shares = np.linspace(0.0, 0.9, 19)

    def likelihood(power: float) -> float:
        # of the labels for the best share s that is wrong: Π (1 − s) p + s (1 − p) / (classes − 1)
        p = sharper(fitted, power)[given]
        return float(np.log(np.outer(1 - shares, p) + np.outer(shares, 1 - p) / max(classes - 1, 1)).sum(axis=1).max())

    best = max(SHARPNESS.tolist(), key=likelihood)
    return sharper(probabilities, best if verified is None else float(np.sqrt(best * verified)))


def _expected(p: Float64s) -> Float64s:
    """The prior of the confusions (classes, classes): `LOOKS` of them fall on classes that look alike."""
    classes = p.shape[1]
    alike = np.zeros((classes, classes))
    np.add.at(alike, p.argmax(axis=1), p)
    np.fill_diagonal(alike, 0.0)
    alike /= np.maximum(alike.sum(axis=1, keepdims=True), LEAST)
    return np.asarray((1 - LOOKS) * (1 - np.eye(classes)) / max(classes - 1, 1) + LOOKS * alike)


def _slots(sources: Int64s, most: int) -> Int64s:
    """A number for each source, the same one for all but the ``most`` largest."""
    sizes = np.bincount(sources)
    order = (-sizes).argsort(kind="stable")
    slots = np.zeros(len(sizes), np.int64)
    slots[order] = np.minimum(np.arange(len(sizes)), most)
    return slots[sources]


def _confusions(counts: Float64s, even: Float64s) -> Float64s:
    """N (sources, classes, classes) from expected ``counts`` of confusions."""
    pooled = counts.sum(axis=0) + PULL * even  # of all sources, shrunk to classes that look alike
    pooled /= pooled.sum(axis=1, keepdims=True)
    shrunk = counts + PULL * pooled  # of each source, shrunk to all
    return np.asarray(shrunk / shrunk.sum(axis=2, keepdims=True))


def _answer_chances(counts: Float64s, even: Float64s) -> Float64s:
    """M (classes, classes) from expected ``counts`` of answers to rows of each label: the share of right ones is shrunk
    to that of all classes, the wrong ones fall on classes that look alike (``even``)."""
    right = (np.trace(counts) + RIGHT * RIGHT_WEIGHT) / (counts.sum() + RIGHT_WEIGHT)
    prior = np.where(np.eye(len(even), dtype=np.bool_), right, (1 - right) * even)
    told = counts + PULL * prior
    return np.asarray(told / told.sum(axis=1, keepdims=True))


def trial_ratio(count: int, rows: Int64s, hits: Bools, features: Float64s | None = None) -> LogRatio:
    """Repeated trials of ``count`` rows: trial t of row ``rows[t]`` was a hit, which good rows have more often.

    The log odds of a hit are linear in ``features`` (t, f); those of bad rows are lower by a constant, shrunk towards
    none. Trials of one row are alike for other reasons than its class: their sum is divided by
    1 + (trials − 1) ρ, ρ being the correlation of what the classes leave unexplained.
    """
    from scipy.special import expit

    x = np.ones((len(rows), 1)) if features is None else np.column_stack([np.ones(len(rows)), features])
    x[:, 1:] -= x[:, 1:].mean(axis=0) if len(rows) else 0.0
    y = hits.astype(np.float64)
    tried = np.bincount(rows, minlength=count)
    loose = np.full(x.shape[1], 0.01)
    everyone = logistic(x, y, np.ones(len(y)), np.zeros(len(y)), loose)

    def ratio(bad: Float64s | None) -> Float64s:
        if bad is None:
            weights = np.full(len(rows), SHARE)
            well = x @ everyone
            ill = well + GUESS
        else:
            weights = bad[rows]
            well = x @ logistic(x, y, 1 - weights, np.zeros(len(y)), loose)  # log odds of a hit of good rows
            lower = logistic(x[:, :1], y, weights, well, np.array([SPREAD**-2.0]))
            ill = np.minimum(well, well + lower[0])
        p, q = expit(well), expit(ill)
        # of a hit log(q / p), of a miss log((1 − q) / (1 − p))
        values = np.where(hits, np.log(np.maximum(q, LEAST) / np.maximum(p, LEAST)), np.log1p(-q) - np.log1p(-p))
        alike = correlation(rows, tried, y, (1 - weights) * p + weights * q)
        return np.bincount(rows, values, count) / (1 + np.maximum(tried - 1, 0) * alike)  # 1 + (trials − 1) ρ

    return ratio


def correlation(rows: Int64s, tried: Int64s, hits: Float64s, expected: Float64s) -> float:
    """Mean correlation of two trials of one row about what was ``expected`` of each, from `ALIKE` to 1."""
    rest = (hits - expected) / np.sqrt(np.maximum(expected * (1 - expected), LEAST))
    sums, squares = np.bincount(rows, rest, len(tried)), np.bincount(rows, rest**2, len(tried))
    # Σ over pairs i ≠ j of one row of r_i r_j is (Σ r_i)² − Σ r_i²
    pairs = float((tried * (tried - 1)).sum())
    return float(np.clip((sums**2 - squares).sum() / pairs, ALIKE, 1.0)) if pairs else ALIKE


def logistic(x: Float64s, y: Float64s, weights: Float64s, offset: Float64s, penalty: Float64s) -> Float64s:
    """Coefficients (f,) of a logistic regression of y (t,) on x (t, f) with row ``weights``, by Newton's method;
    ``penalty`` (f,) is the precision of each coefficient's normal prior about 0."""
    from scipy.special import expit

    coefficients = np.zeros(x.shape[1])
    for _ in range(25):
        p = expit(offset + x @ coefficients)
        slope = x.T @ (weights * (y - p)) - penalty * coefficients
        curve = (x * (weights * p * (1 - p))[:, None]).T @ x + np.diag(penalty)
        step = np.clip(np.linalg.solve(curve, slope), -2.0, 2.0)
        coefficients += step
        if np.abs(step).max() < 1e-6:
            break
    return coefficients


def score_ratio(scores: Float64s) -> LogRatio:
    """Scores (n,), nan for rows without one; a good row has the higher ones.

    The densities of both classes are estimated in bins of equal counts; their ratio is made monotone.
    """
    from scipy.optimize import isotonic_regression

    graded = np.flatnonzero(~np.isnan(scores))
    order = scores[graded].argsort(kind="stable")
    bins = int(np.clip(len(graded) // BIN_ROWS, 1, BINS))
    back = np.unique(scores[graded], return_inverse=True)[1]
    rank = np.empty(len(graded))
    rank[order] = (np.arange(len(graded)) + 0.5) / max(len(graded), 1)
    middle = np.bincount(back, rank) / np.maximum(np.bincount(back), 1)  # equal scores share a bin
    place = np.minimum((middle[back] * bins).astype(np.int64), bins - 1)
    size = np.bincount(place, minlength=bins)

    def ratio(bad: Float64s | None) -> Float64s:
        values = np.zeros(len(scores))
        if bad is None:
            values[graded] = GUESS * 2 * (middle[back] - 0.5)
            return values
        counts = np.bincount(place, bad[graded], bins)
        total, share = size.sum(), bad[graded].mean() if len(graded) else 0.0
        # the share of all bad rows that is in each bin, and of all good ones
        ill = (counts + PSEUDO * share) / (total * share + bins * PSEUDO * share + LEAST)
        well = (size - counts + PSEUDO * (1 - share)) / ((total + bins * PSEUDO) * (1 - share) + LEAST)
        ratios = np.log(ill + LEAST) - np.log(well + LEAST)
        values[graded] = isotonic_regression(ratios, weights=np.maximum(size, LEAST), increasing=False).x[place]
        return values

    return ratio


SOUND, ILL = np.array([0.9852, 0.0146, 0.0002]), np.array([0.5, 0.17, 0.33])
"""Shares of the good and of the bad rows in which checks of outputs find nothing, a doubt, and a fault: of good rows by
each check, about as in pools without planted faults (benchmarks/check_outputs.py); of bad rows by all checks together.
The latter are not learnt: where outputs are the only evidence, all rows could be bad and few of them show it."""

SOUND_WEIGHT = 2_000.0
"""Weight of the former in rows, against the pool's own."""


def fault_ratios(levels: Mapping[Kind, Int64s]) -> dict[Kind, LogRatio]:
    """What the checks found in each row, by kind (n,): nothing (0), a doubt (1), a fault (2).

    A bad row is bad in one way: the kinds that found anything share `ILL`, and that none of them did counts once a row,
    not once a kind. How often a kind finds something in good rows is learnt; nothing never speaks for bad, a doubt
    never for good, a fault never less for bad than a doubt.
    """
    count = max(len(levels), 1)
    ill = np.array([ILL[0] ** (1 / count), *(ILL[1:] / count)])
    silent = ~np.any([of > 0 for of in levels.values()], axis=0)

    def ratio_of(of: Int64s) -> LogRatio:
        def ratio(bad: Float64s | None) -> Float64s:
            well = SOUND_WEIGHT * SOUND + (0.0 if bad is None else np.bincount(of, 1 - bad, 3))
            ratios = np.log(ill) - np.log(well / well.sum())
            ratios = np.array([min(ratios[0], 0.0), max(ratios[1], 0.0), max(ratios[1], ratios[2], 0.0)])
            return np.where(silent | (of > 0), ratios[of], 0.0)

        return ratio

    return {kind: ratio_of(of) for kind, of in levels.items()}
