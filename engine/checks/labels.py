"""Suspected label errors: confident learning (Northcutt, Jiang and Chuang 2021) with cleanlab.

Each row's probabilities come from classifiers trained without the row and its near duplicates, because copies of a
wrong label would confirm each other. There are two passes: the second fit leaves out the rows suspected by the first,
so that many wrong labels in a class do not teach the classifier that they are right.

A source that mislabels by rule, such as two labels swapped in all its rows, teaches the classifiers that rule. So
`against_other_sources` joins the predictions with those of classifiers that learnt from other sources alone.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from ..base.arrays import Bools, Float32s, Float64s, Int64s, one_blas_thread
from ..base.progress import CancelToken, Report, in_steps, silent

FOLDS = 5
STRENGTH = 2.0
"""Inverse of the L2 penalty of the logistic regression. Vectors have length 1, so the usual value of 1 is a strong
penalty; on a noisy pool, a weaker penalty than this one fits the noise."""

MOST_FITTED = 20_000
"""Maximum rows to fit a classifier on; more make no difference to some hundred weights per class, and take longer."""


@dataclass(frozen=True, slots=True)
class LabelPredictions:
    """Labels with the predictions of the classifiers.

    ``labels`` (n,) are indices into ``names``; -1 for a row whose class has too few independent rows to be checked.
    ``quality`` (n,) is cleanlab's normalised margin, from 0 (surely wrong) to 1; 1 for rows that were not checked.
    ``probabilities`` (n, len(names)); ``suspect`` (n,).
    """

    names: tuple[str, ...]
    labels: Int64s
    probabilities: Float64s
    quality: Float64s
    suspect: Bools

    def suggested(self) -> Int64s:
        """The most probable label other than the row's own, (n,), as an index into ``names``."""
        others = self.probabilities.copy()
        judged = np.flatnonzero(self.labels >= 0)
        others[judged, self.labels[judged]] = -1.0
        return np.asarray(others.argmax(axis=1), np.int64)


def judge_labels(
    vectors: Float32s,
    outputs: list[str],
    groups: Int64s,
    report: Report = silent,
    cancel: CancelToken | None = None,
    pruned: Bools | None = None,
) -> LabelPredictions | None:
    """Find suspected errors among the labels ``outputs`` (n,) of rows with vectors (n, d); rows with equal ``groups``
    (n,) are duplicates. Rows that are ``pruned`` (n,) are judged, but teach the classifiers only where their class has
    fewer than `FOLDS` groups of others. None if fewer than two classes have `FOLDS` groups, too few for
    cross-validation. Raises `Cancelled` between folds."""
    from cleanlab.filter import find_label_issues

    names, labels = _classes(outputs, groups)
    rows = np.flatnonzero(labels >= 0)
    if len(names) < 2:
        return None
    x, y = vectors[rows], labels[rows]
    folds = fold_of(y, groups[rows])
    untaught = _untaught(y, groups[rows], pruned[rows]) if pruned is not None else np.zeros(len(rows), np.bool_)
    bad = untaught
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from cleanlab, for classes without suspects
        for done in (0, FOLDS):
            p = np.zeros((len(y), len(names)))  # p(class | x), out of sample
            for step in in_steps("labels", range(done, done + FOLDS), 2 * FOLDS, report, cancel):
                tested = folds == step - done
                train = _training(y, ~tested, bad)
                p[tested] = _fitted(x[train], y[train], x[tested], len(names))
            # prune by noise rate: of classes i ≠ j the n Q[i, j] rows of label i with the largest margin p[j] − p[i]
            suspects = np.asarray(find_label_issues(y, p, n_jobs=1), np.bool_)
            bad = suspects | untaught  # the second pass learns from what the first does not suspect
    return _predictions(names, labels, p, suspects & (p.argmax(axis=1) != y))


def judge_by_trusted(
    vectors: Float32s,
    outputs: list[str],
    groups: Int64s,
    trusted: Bools,
    report: Report = silent,
    cancel: CancelToken | None = None,
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
        for fold in in_steps("labels", range(FOLDS), FOLDS, report, cancel):
            train = _at_most(np.flatnonzero(teaches & taught[y] & (folds != fold)), y)
            p[folds == fold] = _fitted(x[train], y[train], x[folds == fold], len(names))
    return _predictions(names, labels, p, p.argmax(axis=1) != y)


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
    vectors: Float32s,
    groups: Int64s,
    sources: Int64s,
    report: Report = silent,
    cancel: CancelToken | None = None,
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
        for fold in in_steps("labels", range(count), count, report, cancel):
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


def fold_of(labels: Int64s, groups: Int64s, seed: int = 0) -> Int64s:
    """The fold of each row, (n,): groups stay whole and are distributed class by class (the class of their first row),
    so that each fold has its share of every class."""
    heads, first, of = np.unique(groups, return_index=True, return_inverse=True)
    order = np.lexsort((np.random.default_rng(seed).random(len(heads)), labels[first]))
    folds = np.empty(len(heads), np.int64)
    folds[order] = np.arange(len(heads)) % FOLDS
    return folds[of]


def _fitted(x: Float32s, y: Int64s, asked: Float32s, classes: int) -> Float64s:
    """Probabilities (m, classes) of the ``asked`` (m, d) by a classifier fitted on ``x`` (n, d) and ``y`` (n,)."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=STRENGTH, max_iter=200, tol=1e-3).fit(x, y)
    p = np.zeros((len(asked), classes))
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
