"""Suspected label errors: confident learning (Northcutt, Jiang and Chuang 2021) with cleanlab.

Each row's probabilities come from classifiers trained without the row and its near duplicates, because copies of a
wrong label would confirm each other. There are two passes: the second fit leaves out the rows suspected by the first,
so that many wrong labels in a class do not teach the classifier that they are right.

Validation queries have verified labels. They teach the classifiers, too, and tell how far a pool can be believed: its
labels may follow another convention, or be those that an LLM or a rule gives (trusted data: Hendrycks, Mazeika, Wilson
and Gimpel 2018).

Without them, a source that mislabels by rule, such as two labels swapped in all its rows, teaches the classifiers that
rule. So `against_other_sources` joins the predictions with those of classifiers that learnt from other sources alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..base.arrays import Bools, Float32s, Float64s, Int64s, one_blas_thread
from ..base.progress import SILENT, Monitor
from ..pool.choices import option_of

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

Features: TypeAlias = "Float32s | csr_matrix"
"""What classifiers see of rows, (n, d): dense or sparse."""

FOLDS = 5
STRENGTH = 2.0
"""Inverse of the L2 penalty of the logistic regression. Vectors have length 1, so the usual value of 1 is a strong
penalty; on a noisy pool, a weaker penalty than this one fits the noise."""

VERIFIED_STRENGTH = 20.0
"""The same of classifiers that learn from verified labels alone: there is no noise to fit."""

LEAST_VERIFIED = 10
"""Verified labels of the pool from which they are used."""

UNSEEN = 3.0
"""A label that no verified query has says something by itself if so many were expected: of three expected there is none
by chance in 5 %."""

FLOOR = 0.03
"""Share of a uniform distribution mixed into the classifier's: however sure it is, it may have learnt what is wrong."""

SHARES: Sequence[float] = np.linspace(0.0, 1.0, 21).tolist()
POWERS: Sequence[float] = np.geomspace(0.4, 4.0, 25).tolist()
"""Candidate weights of the classifiers that see the pool, beside those that do not; and exponents of both."""

MOST_WEIGHED = 2_000
"""Verified labels by which these are chosen, at most: each pair takes a softmax over all classes of all of them."""

LEAST = 1e-6

UNSHIFTED = 1e9
ADDED: Sequence[float] = (UNSHIFTED, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
"""Added to the queries of each label, seen and expected, before they are compared: with so many nothing is shifted."""

SURELY = 3.0
"""Log likelihood that the labels of the queries must gain by other frequencies than the pool's: 20 times likelier."""

BELIEVED = 0.5
"""`_Teachers.share` from which unheard labels are as common as the pool says: few of them are missing by chance."""

LEAST_KAPPA, SURE_KAPPA = 0.25, 1.645
"""`Skill.kappa` from which on classifiers judge labels, and standard errors by which it exceeds chance on verified ones
(one-sided 5 %). With the own labels of a pool they agree as far as these are right: .34 where 60 % of 15 labels are
wrong, .40 where 30 % of two are. Where inputs do not tell labels it is .0 to .2, with verified ones, too."""

BLOCK = 100_000
"""Labels whose chances are computed at once."""

MOST_FITTED = 20_000
"""Maximum rows to fit a classifier on; more make no difference to some hundred weights per class, and take longer."""


@dataclass(frozen=True, slots=True)
class Skill:
    """How often classifiers tell ``count`` labels, ``verified`` ones or those of the pool, from which they did not
    learn: the share that is ``right``, and that which would be by ``chance``. Letters of options, or yes and no to
    questions, are hardly told from the input: who disagrees with such classifiers is no suspect."""

    right: float
    chance: float
    count: int
    verified: bool

    @classmethod
    def of(cls, p: Float64s, y: Int64s, verified: bool, together: Int64s | None = None) -> Skill:
        """From probabilities ``p`` (n, classes), out of sample, and labels ``y`` (n,), those with equal ``together``
        (n,) being no alternatives to each other."""
        n, possible = max(len(y), 1), None if together is None else alternatives(y, together, p.shape[1])
        said = (p if possible is None else p * possible).argmax(axis=1)
        own, other = (np.bincount(labels, minlength=p.shape[1]) / n for labels in (said, y))
        chance = float(own @ other)
        if possible is not None and len(
            y
        ):  # each by the labels that it could have; in blocks, as there may be millions
            blocks = np.array_split(possible, -(-len(y) // BLOCK))
            chance = sum(float((of @ (own * other) / ((of @ own) * (of @ other))).sum()) for of in blocks) / n
        return cls(float(np.count_nonzero(said == y) / n), chance, n, verified)

    @property
    def kappa(self) -> float:
        """What is right of that which chance would get wrong (Cohen 1960)."""
        return (self.right - self.chance) / max(1 - self.chance, LEAST)

    def line(self, what: str) -> str:
        """In words, ``what`` are labels or parts."""
        whose = f"{self.count:,} verified {what}" if self.verified else f"the {what}"
        return f"classifiers predict {self.right:.0%} of {whose}, chance would {self.chance:.0%}"

    @property
    def enough(self) -> bool:
        error = np.sqrt(self.right * (1 - self.right) / self.count) / max(1 - self.chance, LEAST)
        return bool(self.kappa >= max(LEAST_KAPPA, SURE_KAPPA * error if self.verified else 0.0))


def alternatives(y: Int64s, together: Int64s, classes: int) -> Bools:
    """Which labels each of the ``y`` (n,) could have, (n, classes): all but those of the others that go ``together``
    (n,) with it, such as the other labels of a set. -1: it has none."""
    possible, order = np.ones((len(y), classes), np.bool_), np.argsort(together, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(together[order])) + 1):
        labels = y[members]
        for i in members if len(members) > 1 else ():
            possible[i, labels[(labels >= 0) & (labels != y[i])]] = False
    return possible


@dataclass(frozen=True, slots=True)
class LabelPredictions:
    """Labels with the predictions of the classifiers.

    ``labels`` (n,) are indices into ``names``; -1 for a row whose class has too few independent rows to be checked.
    ``quality`` (n,) is cleanlab's normalised margin, from 0 (surely wrong) to 1; 1 for rows that were not checked.
    ``probabilities`` (n, len(names)); ``suspect`` (n,). ``power``: the exponent of the probabilities under which the
    labels of verified queries are most likely, None without these. ``skill`` is that of the classifiers.
    """

    names: tuple[str, ...]
    labels: Int64s
    probabilities: Float64s
    quality: Float64s
    suspect: Bools
    power: float | None = None
    skill: Skill | None = None

    def suggested(self) -> Int64s:
        """The most probable label other than the row's own, (n,), as an index into ``names``."""
        others = self.probabilities.copy()
        judged = np.flatnonzero(self.labels >= 0)
        others[judged, self.labels[judged]] = -1.0
        return np.asarray(others.argmax(axis=1), np.int64)


@dataclass(frozen=True, slots=True)
class Verified:
    """Queries whose labels are known to be right: ``vectors`` (m, d) and ``labels`` (m,), and which of these go
    ``together`` (m,), as in `alternatives`."""

    vectors: Features
    labels: Sequence[str]
    together: Int64s | None = None


def judge_labels(
    vectors: Features,
    outputs: list[str],
    groups: Int64s,
    monitor: Monitor = SILENT,
    pruned: Bools | None = None,
    verified: Verified | None = None,
    together: Int64s | None = None,
) -> LabelPredictions | None:
    """Find suspected errors among the labels ``outputs`` (n,) of rows with ``vectors`` (n, d). Rows with equal
    ``groups`` (n,) are duplicates. Rows that are ``pruned`` (n,) are judged, but teach the classifiers only where their
    class has fewer than `FOLDS` groups of others. ``verified`` labels teach, too, and decide how far those of the pool
    count. ``together`` (n,) as in `alternatives`. None if fewer than two classes have `FOLDS` groups, too few for
    cross-validation. Raises `Cancelled` between folds."""
    from cleanlab.filter import find_label_issues

    names, labels = _classes(outputs, groups)
    rows = np.flatnonzero(labels >= 0)
    if len(names) < 2:
        return None
    n, x, y = len(rows), vectors[rows], labels[rows]
    folds = fold_of(y, groups[rows])
    untaught = _untaught(y, groups[rows], pruned[rows]) if pruned is not None else np.zeros(n, np.bool_)
    power = skill = None
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from cleanlab, for classes without suspects
        if teachers := _Teachers.of(verified, names, np.bincount(y[~untaught], minlength=len(names))):
            x, y, folds = _stacked(x, teachers.x), np.r_[y, teachers.y], np.r_[folds, teachers.folds]
            untaught = np.r_[untaught, np.zeros(len(teachers.y), np.bool_)]
        bad = untaught
        for done in (0, FOLDS):
            p = np.zeros((len(y), len(names)))  # p(class | x), out of sample
            for step in monitor.in_steps("labels", range(done, done + FOLDS), 2 * FOLDS):
                tested = folds == step - done
                train = _training(y, ~tested, bad)
                p[tested] = _fitted(x[train], y[train], x[tested], len(names))
            if teachers:
                power = teachers.join(p, x, folds)
            if not done:  # later no label is new: whom it disagrees with teaches no more
                part = np.arange(len(y)) >= n if teachers else ~untaught
                same = teachers.together if teachers else None if together is None else together[rows][part]
                skill = Skill.of(p[part], y[part], teachers is not None, same)
            # prune by noise rate: of classes i ≠ j the n Q[i, j] rows of label i with the largest margin p[j] − p[i]
            suspects = np.asarray(find_label_issues(y[:n], p[:n], n_jobs=1), np.bool_)
            bad = untaught.copy()  # the second pass learns from what the first does not suspect
            bad[:n] |= suspects
    judged = _predictions(names, labels, p[:n], suspects & (p[:n].argmax(axis=1) != y[:n]))
    return replace(judged, power=power, skill=skill)


@dataclass(frozen=True, slots=True)
class _Teachers:
    """Verified queries with a label of the pool: vectors ``x`` (m, d), labels ``y`` (m,) and ``folds`` (m,).

    ``alone``: for each fold a classifier that learnt from the queries of the others and from no row. It can say nothing
    of the ``unheard`` labels (classes,): no query has them, and not many were expected to. The pool is believed in
    these by a ``share``: how many of the queries to come will have a label that none had yet (Good 1953), over how many
    of the rows have an unheard one. ``rare`` (classes,): of these labels not many were expected, heard or not.
    """

    x: Features
    y: Int64s
    folds: Int64s
    alone: Sequence[LogisticRegression]
    rare: Bools
    unheard: Bools
    share: float
    together: Int64s | None

    @classmethod
    def of(cls, verified: Verified | None, names: Sequence[str], rows: Int64s) -> _Teachers | None:
        """``rows`` (classes,) of each class are in the pool. None if there are too few queries to learn from."""
        from sklearn.linear_model import LogisticRegression

        if verified is None:
            return None
        places = {label: option_of(label, names) for label in set(verified.labels)}
        labels = np.array([-1 if (at := places[label]) is None else at for label in verified.labels], np.int64)
        named = _at_most(np.flatnonzero(labels >= 0), labels)
        x, y = verified.vectors[named], labels[named]
        counts = np.bincount(y, minlength=len(names))
        if len(y) < LEAST_VERIFIED or np.count_nonzero(counts > 1) < 2:
            return None
        folds = fold_of(y, np.arange(len(y)))
        alone = [
            LogisticRegression(C=VERIFIED_STRENGTH, max_iter=200, tol=1e-3).fit(x[folds != fold], y[folds != fold])
            for fold in range(FOLDS)
        ]
        rare = len(labels) * rows < UNSEEN * rows.sum()
        unheard = rare & (counts == 0)
        to_come = (np.count_nonzero(counts == 1) + 1) / (len(y) + 2)
        share = to_come * rows.sum() / max(rows[unheard].sum(), 1)
        together = None if verified.together is None else verified.together[named]
        return cls(x, y, folds, alone, rare, unheard, min(share, 1.0), together)

    def join(self, p: Float64s, x: Features, folds: Int64s) -> float:
        """Mix into ``p`` (n + m, classes), the probabilities of rows and then queries with vectors ``x``, those of
        ``alone``: with the weight, and at the exponent, that make the labels of the queries most likely (a linear
        opinion pool). Returns the exponent. Before, ``p`` gets the frequencies of labels that the queries have."""
        part = np.linspace(0, len(self.y) - 1, min(len(self.y), MOST_WEIGHED)).astype(np.int64)
        p *= self._shift(p[len(p) - len(self.y) + part], self.y[part])
        p /= p.sum(axis=1, keepdims=True)
        joint, queries = p[len(p) - len(self.y) + part], np.zeros((len(part), p.shape[1]))
        for fold in range(FOLDS):
            own = self.folds[part] == fold
            queries[own] = self._said(self.x[part[own]], fold, joint[own])

        def likelihood(chosen: tuple[float, float]) -> float:
            share, power = chosen
            mixed = sharper(share * joint + (1 - share) * queries, power)
            return float(np.log(mixed[np.arange(len(part)), self.y[part]]).sum())

        share, power = max(product(SHARES, POWERS), key=likelihood)
        for fold in range(FOLDS):
            tested = folds == fold
            p[tested] = share * p[tested] + (1 - share) * self._said(x[tested], fold, p[tested])
        return power

    def _shift(self, joint: Float64s, y: Int64s) -> Float64s:
        """How much more common each label is among queries with the labels ``y`` (m,) than by ``joint`` (m, classes),
        what the pool says of them, (classes,): a shift of frequencies (Saerens, Latinne and Decaestecker 2002). A pool
        with other names than the queries has many that none of them bears; each alone may be missing by chance. With
        `FOLDS` queries for each of their labels, ``alone`` knows all of this, and nothing is shifted."""
        if len(self.y) >= FOLDS * len(np.unique(self.y)):
            return np.ones(joint.shape[1])
        own = np.eye(joint.shape[1])[y]
        seen, expected = own.sum(axis=0), joint.sum(axis=0)

        def ratio(seen: Float64s, expected: Float64s, added: float) -> Float64s:
            believed = self.rare & (seen == 0) & (self.share > BELIEVED)
            return np.where(believed, 1.0, (seen + added) / (expected + added))

        def likelihood(added: float) -> float:
            shifted = joint * ratio(seen - own, expected - joint, added)  # each by the others
            return float(np.log((shifted * own).sum(axis=1) / shifted.sum(axis=1) + LEAST).sum())

        added = max(ADDED, key=likelihood)
        surely = likelihood(added) > likelihood(UNSHIFTED) + SURELY
        return ratio(seen, expected, added if surely else UNSHIFTED)

    def _said(self, x: Features, fold: int, p: Float64s) -> Float64s:
        """What the queries of other folds say of ``x`` (n, d): ``p`` (n, classes) where they are unheard."""
        said = np.zeros(p.shape)
        said[:, self.alone[fold].classes_] = self.alone[fold].predict_proba(x)
        unheard = self.share * p[:, self.unheard]
        said *= 1 - unheard.sum(axis=1, keepdims=True)
        said[:, self.unheard] = unheard
        return said


def sharper(p: Float64s, power: float) -> Float64s:
    """Probabilities (n, classes) to a ``power``, mixed with `FLOOR` of equal shares."""
    from scipy.special import softmax

    logs = power * np.log(np.maximum(p, LEAST))
    return np.asarray((1 - FLOOR) * softmax(logs, axis=1) + FLOOR / p.shape[1])


def judge_by_trusted(
    vectors: Float32s, outputs: list[str], groups: Int64s, trusted: Bools, monitor: Monitor = SILENT
) -> LabelPredictions | None:
    """As `judge_labels`, by classifiers that learn from ``trusted`` (n,) rows alone, whatever the others say: a label
    that no trusted row has is improbable everywhere. A row is suspected if another label is more probable. None if
    fewer than two classes have `FOLDS` groups of trusted rows."""
    names, labels = _classes(outputs, groups)
    rows = np.flatnonzero(labels >= 0)
    if len(names) < 2 or not trusted[rows].any():
        return None
    x, y, kin, teaches = vectors[rows], labels[rows], groups[rows], trusted[rows]
    taught = _groups_of(y[teaches], kin[teaches], len(names)) >= FOLDS
    if np.count_nonzero(taught) < 2:
        return None
    folds, p = fold_of(y, kin), np.zeros((len(rows), len(names)))
    with one_blas_thread():
        for fold in monitor.in_steps("labels", range(FOLDS), FOLDS):
            train = _at_most(np.flatnonzero(teaches & taught[y] & (folds != fold)), y)
            p[folds == fold] = _fitted(x[train], y[train], x[folds == fold], len(names))
    return _predictions(names, labels, p, p.argmax(axis=1) != y)


def _stacked(one: Features, other: Features) -> Features:
    from scipy.sparse import vstack

    return np.r_[one, other] if isinstance(one, np.ndarray) else vstack([one, other]).tocsr()


def _predictions(names: tuple[str, ...], labels: Int64s, p: Float64s, suspects: Bools) -> LabelPredictions:
    """Of all rows, from those of the rows judged: ``p`` (m, classes) and ``suspects`` (m,)."""
    from cleanlab.rank import get_label_quality_scores

    rows = np.flatnonzero(labels >= 0)
    scores = get_label_quality_scores(labels[rows], p, method="normalized_margin")
    quality, suspect = np.ones(len(labels)), np.zeros(len(labels), np.bool_)
    probabilities = np.zeros((len(labels), len(names)))
    quality[rows], suspect[rows], probabilities[rows] = np.clip(scores, 0.0, 1.0), suspects, p
    return LabelPredictions(names, labels, probabilities, quality, suspect)


def against_other_sources(
    judged: LabelPredictions,
    vectors: Features,
    groups: Int64s,
    sources: Int64s,
    monitor: Monitor = SILENT,
    pruned: Bools | None = None,
) -> LabelPredictions:
    """``judged`` with other ``probabilities``: the mean of its own and those of classifiers that learnt from rows of
    other sources alone, without near duplicates of the rows they judge, each weighted by the rows that taught it.

    ``sources`` (n,) are numbers; the other arguments are those of `judge_labels`. Rows whose class has fewer than
    `FOLDS` rows in the other sources keep their probabilities. Raises `Cancelled` between folds.
    """
    rows = np.flatnonzero(judged.labels >= 0)
    folds = _folds_of_sources(sources[rows])
    count = int(folds.max()) + 1
    if count < 2:
        return judged
    x, y, kin = vectors[rows], judged.labels[rows], groups[rows]
    untaught = _untaught(y, kin, pruned[rows]) if pruned is not None else np.zeros(len(rows), np.bool_)
    taught = np.count_nonzero(~untaught) * (1 - 1 / FOLDS)
    probabilities = judged.probabilities.copy()
    with one_blas_thread():
        for fold in monitor.in_steps("labels", range(count), count):
            tested = folds == fold
            outside = ~(tested | untaught | np.isin(kin, kin[tested]))
            train = _training(y, outside, ~outside)
            counts = np.bincount(y[train], minlength=len(judged.names))
            places = np.flatnonzero(tested & (counts >= FOLDS)[y])
            if not places.size or np.count_nonzero(counts) < 2:
                continue
            share = len(train) / (len(train) + min(taught, MOST_FITTED))  # the weight by the rows that taught each
            p = _fitted(x[train], y[train], x[places], len(judged.names))
            probabilities[rows[places]] = share * p + (1 - share) * probabilities[rows[places]]
    return replace(judged, probabilities=probabilities)


def _folds_of_sources(sources: Int64s) -> Int64s:
    """The fold of each row, (n,): sources stay whole, at most `FOLDS` folds of about the same size."""
    _, of, sizes = np.unique(sources, return_inverse=True, return_counts=True)
    folds, load = np.empty(len(sizes), np.int64), np.zeros(min(len(sizes), FOLDS))
    for source in np.argsort(-sizes, kind="stable").tolist():
        folds[source] = load.argmin()
        load[folds[source]] += sizes[source]
    return folds[of]


def _classes(outputs: list[str], groups: Int64s) -> tuple[tuple[str, ...], Int64s]:
    """Classes with at least `FOLDS` groups, and the index of each row's class, -1 for other classes, (n,)."""
    classes, labels = np.unique(np.array(outputs, object), return_inverse=True)
    enough = _groups_of(np.asarray(labels), groups, len(classes)) >= FOLDS
    places = np.where(enough, np.cumsum(enough) - 1, -1)
    return tuple(classes[enough].tolist()), np.asarray(places[labels], np.int64)


def _groups_of(labels: Int64s, groups: Int64s, classes: int) -> Int64s:
    """The number of groups in each class, (classes,)."""
    pairs = np.unique(np.stack([labels, groups], axis=1), axis=0)
    return np.bincount(pairs[:, 0], minlength=classes)


def _untaught(labels: Int64s, groups: Int64s, pruned: Bools) -> Bools:
    """The pruned rows of classes that can be learnt without them, (n,)."""
    classes = int(labels.max()) + 1
    return pruned & (_groups_of(labels[~pruned], groups[~pruned], classes) >= FOLDS)[labels]


def fold_of(labels: Int64s, groups: Int64s) -> Int64s:
    """The fold of each row, (n,): groups stay whole and are distributed class by class (the class of their first row),
    so that each fold has its share of every class."""
    heads, first, of = np.unique(groups, return_index=True, return_inverse=True)
    order = np.lexsort((np.random.default_rng(0).random(len(heads)), labels[first]))
    folds = np.empty(len(heads), np.int64)
    folds[order] = np.arange(len(heads)) % FOLDS
    return folds[of]


def _fitted(x: Features, y: Int64s, asked: Features, classes: int) -> Float64s:
    """Probabilities (m, classes) of the ``asked`` (m, d) by a classifier fitted on ``x`` (n, d) and ``y`` (n,)."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=STRENGTH, max_iter=200, tol=1e-3).fit(x, y)
    p = np.zeros((asked.shape[0], classes))
    p[:, model.classes_] = model.predict_proba(asked)
    return p


def _training(y: Int64s, outside: Bools, left_out: Bools) -> Int64s:
    """Positions to fit on, at most `MOST_FITTED`. A class that would lose nearly all its rows keeps them: if it had
    none, each of its rows would be suspected."""
    train = outside & ~left_out
    lost = np.bincount(y[train], minlength=int(y.max()) + 1) < 2
    return _at_most(np.flatnonzero(train | (outside & lost[y])), y)


def _at_most(places: Int64s, y: Int64s) -> Int64s:
    """Of more than `MOST_FITTED` places as many, each class in proportion, none missing."""
    if len(places) <= MOST_FITTED:
        return places
    draw = np.random.default_rng(0).random(len(places))
    by_class = np.lexsort((draw, y[places]))
    counts = np.bincount(y[places])
    rank = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    share = (rank + 0.5) / counts[y[places[by_class]]]  # each class's first row comes first: none is missing
    ordered = np.lexsort((share, rank >= FOLDS))
    return np.sort(places[by_class[ordered[:MOST_FITTED]]])
