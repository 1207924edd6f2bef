"""What is known of each row of the active pool, joined in one probability that it hurts: its output is wrong for its
input.

The evidence: the label against classifiers trained without the row, or free text against its input; the row's answers
as the only demonstration of validation queries (``train sources``), its steps in prompts of the ranker (``train
ranker``), the LLM's answers to its own input without shots (``train topics``) and with its nearest other rows (``train
rows``), and its source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..base.arrays import Bools, Float64s, Int64s
from ..base.contract import Reported
from ..base.errors import UsageError
from ..pool.records import Task
from ..store import trials
from ..store.trials import PromptTrials, RowAnswers
from .active import ActivePool, IndexedRows
from .labels import LabelPredictions
from .posterior import SHARE, LabelRatio, LogRatio, Posterior, fit, score_ratio, trial_ratio

PENALTIES = np.geomspace(0.3, 100.0, 9)
"""Penalties of the regression on rows, in prompts, of which cross-validation takes one."""


FOLDS = 5


def row_effects(found: PromptTrials, rows: Int64s) -> Float64s:
    """(n,) for ``rows`` (n,), ascending: the change in accuracy if a prompt shows the row, shrunk towards none; nan for
    a row that no prompt showed. Ridge regression on who was in the prompt, of what is left when the other prompts of
    the query are known."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import lsqr

    effects = np.full(len(rows), np.nan)
    prompts = np.repeat(np.arange(len(found.shown)), [len(shown) for shown in found.shown])
    shown_rows = np.array([row for shown in found.shown for row in shown], np.int64)
    there = np.isin(shown_rows, rows)
    if not there.any():
        return effects
    cells = prompts[there], np.searchsorted(rows, shown_rows[there])
    x = csr_matrix((np.ones(len(cells[0])), cells), (len(found.shown), len(rows)))
    rest = _unexplained(found)
    fold = np.random.default_rng(0).permutation(len(rest)) % FOLDS

    def fitted(train: Int64s, penalty: float) -> Float64s:
        return np.asarray(lsqr(x[train], rest[train], damp=float(np.sqrt(penalty)))[0])

    def missed(penalty: float) -> float:
        return sum(
            float(np.square(rest[fold == f] - x[fold == f] @ fitted(np.flatnonzero(fold != f), penalty)).sum())
            for f in range(FOLDS)
        )

    best = min(PENALTIES.tolist(), key=missed)
    shown = np.asarray(x.sum(axis=0)).ravel() > 0
    effects[shown] = fitted(np.arange(len(rest)), best)[shown]
    return effects


def _unexplained(found: PromptTrials) -> Float64s:
    """(n,) each answer, right (1) or wrong (0), minus the mean of the other prompts of its query, which is shrunk
    towards that of all with the weight of two prompts."""
    queries = np.unique(found.queries, return_inverse=True)[1]
    right = found.right.astype(np.float64)
    hits, tried = np.bincount(queries, right), np.bincount(queries)
    return np.asarray(right - (hits[queries] - right + 2 * right.mean()) / (tried[queries] + 1))


def means(values: Float64s, groups: Int64s) -> Float64s:
    """Means (groups, c) of ``values`` (n, c)."""
    sums = np.zeros((groups.max(initial=-1) + 1, values.shape[1]))
    np.add.at(sums, groups, values)
    return np.asarray(sums / np.bincount(groups)[:, None])


SURE = 0.9
"""Probability from which on `suspects prune` prunes."""


@dataclass(frozen=True, slots=True)
class RowEvidence(Reported):
    """A row of the active pool. ``posterior``: the probability that it hurts. ``parts``: log odds, which add up to
    those of the posterior; ``source`` is that of the row's source, the others are positive if they speak against the
    row. ``counts``: the trials, steps and answers behind them. ``suggested``: the most probable other label of a row
    that is as likely to hurt as not, or empty; ``chance``: the probability that it is right if the row's own is wrong.
    """

    row: int
    id: str
    source: str
    output: str
    posterior: float
    parts: Mapping[str, float]
    counts: Mapping[str, int]
    suggested: str = ""
    chance: float = 0.0

    @property
    def summary(self) -> str:
        """The parts in a line, the one that weighs most first."""
        ordered = sorted(self.parts.items(), key=lambda part: -abs(part[1]))
        return ", ".join(f"{name} {value:+.1f}" for name, value in ordered if abs(value) >= 0.05)

    @property
    def reason(self) -> str:
        """The reason stored in the history if the row is pruned."""
        return f"suspect: {self.posterior:.3f} likely to hurt ({self.summary})"


@dataclass(frozen=True, slots=True)
class PoolEvidence:
    """Every row of the active pool, by row number; ``kinds``: the evidence there was, ``notes``: what was missing."""

    rows: tuple[RowEvidence, ...]
    kinds: tuple[str, ...]
    notes: tuple[str, ...]

    def suspects(self, least: float = 0.5) -> list[RowEvidence]:
        """Rows with a posterior of ``least`` or more, the most suspect first."""
        return sorted((row for row in self.rows if row.posterior >= least), key=lambda row: (-row.posterior, row.row))

    def of(self, name: str) -> RowEvidence:
        """The row with this id. Raises `UsageError` if it is not in the active pool."""
        for row in self.rows:
            if row.id == name:
                return row
        raise UsageError(f"no row with id '{name}' in the active pool", "icl-curate demos --search TEXT")


@dataclass(frozen=True, slots=True)
class KindOfEvidence:
    """One kind of evidence, and its counts (n,) by name."""

    kind: LogRatio
    counts: Mapping[str, Int64s]


def row_evidence(pool: ActivePool) -> PoolEvidence:
    """The evidence of all rows of the active pool; no LLM is called and nothing is encoded. Pruned rows have a part in
    the fit, as what is known of them tells of their sources. Raises `UsageError` if the pool is empty, `Cancelled`
    between steps."""
    indexed, notes = pool.indexed, []
    active = np.isin(indexed.numbers, pool.view.rows)
    if pool.fault is not None:
        notes.append(f"labels not judged: {pool.fault.what}; {pool.fault.fix}")
    label_predictions, start = indexed.label_predictions, None
    if indexed.contradicted:
        supported = _supported(indexed)
        label_predictions = pool.judged_by(supported & active)
        if label_predictions is None:
            notes.append(f"suspected labels left out: {indexed.contradicted}")
        else:
            start = np.where(supported, SHARE, 1 - SHARE)
            notes.append(f"labels judged by the rows that answers support: {indexed.contradicted}")
    fitted, known = _fitted(pool, label_predictions, start)
    return _pool_evidence(active, indexed, label_predictions, fitted, known, notes)


def _supported(indexed: IndexedRows) -> Bools:
    """The rows that answers support where they contradict the suspected labels, (m,): those with a suspected label, and
    the others of a source most of whose labels are suspected."""
    of = np.unique([row.source for row in indexed.rows], return_inverse=True)[1]
    return indexed.refuted | (np.bincount(of, indexed.refuted) > np.bincount(of) / 2)[of]


def _fitted(
    pool: ActivePool, label_predictions: LabelPredictions | None, start: Float64s | None
) -> tuple[Posterior, Mapping[str, KindOfEvidence]]:
    """The posterior of the indexed rows by all kinds of evidence, and these; ``start`` (m,) as of `fit`."""
    workspace, indexed = pool.workspace, pool.indexed
    rows = indexed.numbers
    sources = np.asarray(np.unique([row.source for row in indexed.rows], return_inverse=True)[1], np.int64)
    known: dict[str, KindOfEvidence] = {}
    if label_predictions is not None:
        ratio = LabelRatio(label_predictions.probabilities, label_predictions.labels, sources)
        known["label"] = KindOfEvidence(ratio, {})
    quality = None if label_predictions is None else own_odds(label_predictions)
    if indexed.mismatches is not None and indexed.mismatches.usable:
        ratios = indexed.mismatches.log_ratios
        known["match"] = KindOfEvidence(lambda _: ratios, {})
    found = trials.latest(workspace)
    if found is not None:
        known["trials"] = _trials(found, rows, quality)
    effects = trials.row_flips(workspace)
    if effects:
        known["flips"] = _flips(effects, rows, quality)
    subsets = trials.latest_prompts(workspace)
    if subsets is not None:
        known["prompts"] = _prompts(subsets, rows)
    for name, zero_shot in (("zero-shot", True), ("own", False)):
        row_answers = trials.latest_answers(workspace, zero_shot)
        if np.isin(row_answers.rows, rows).any():
            known[name] = _answers(row_answers, rows, pool.view.task, quality, name)
    within = None if label_predictions is None else _parts(sources, label_predictions.labels)
    return fit(sources, {name: each.kind for name, each in known.items()}, within, start), known


def _parts(sources: Int64s, labels: Int64s) -> Int64s:
    """Numbers (n,) from 0 of the rows of one source and one label: who mislabels by a rule does so with some labels."""
    return np.asarray(np.unique(np.stack([sources, labels]), axis=1, return_inverse=True)[1].ravel(), np.int64)


def own_odds(label_predictions: LabelPredictions) -> Float64s:
    """Log odds (n,) of each row's own label by the classifiers, those of rows not judged being the median.

    A row whose input is hard to tell apart has both a doubtful label and wrong answers, whatever its class: given this
    feature, trials count for what they say beyond the label.
    """
    places = np.flatnonzero(label_predictions.labels >= 0)
    own = np.clip(label_predictions.probabilities[places, label_predictions.labels[places]], 1e-3, 1 - 1e-3)
    found = np.full(len(label_predictions.labels), np.nan)
    found[places] = np.log(own) - np.log1p(-own)
    return np.where(np.isnan(found), np.median(found[places]), found)


def _trials(found: trials.Trials, rows: Int64s, quality: Float64s | None) -> KindOfEvidence:
    """Single demonstrations on validation queries. Features: how often the other demonstrations of the query were
    right, and the rank."""
    queries = np.unique(found.queries, return_inverse=True)[1]
    right = found.right.astype(np.float64)
    hits, tried = np.bincount(queries, right), np.bincount(queries)
    mean = (right.sum() + 1) / (len(right) + 2)
    others = (hits[queries] - right + 2 * mean) / (tried[queries] + 1)
    first = np.flatnonzero(np.r_[True, queries[1:] != queries[:-1]]) if len(queries) else np.empty(0, np.int64)
    rank = np.arange(len(queries)) - np.repeat(first, np.diff(np.r_[first, len(queries)]))
    features = np.column_stack([np.log(others) - np.log1p(-others), np.log1p(rank)])
    places, there = _places(found.rows, rows)
    counts = {
        "trials": np.bincount(places, minlength=len(rows)),
        "right": np.bincount(places, found.right[there], len(rows)).astype(np.int64),
    }
    return KindOfEvidence(_trial_ratio(len(rows), places, right[there] > 0, features[there], quality), counts)


def _flips(effects: Sequence[trials.RowFlips], rows: Int64s, quality: Float64s | None) -> KindOfEvidence:
    """Prompts of the ranker to which the row was added: right or wrong after, given right or wrong before."""
    places, there = _places(np.array([e.row for e in effects], np.int64), rows)
    seen = [e for e, kept in zip(effects, there.tolist(), strict=True) if kept]
    outcomes = np.array(
        [[e.helped, e.wrong_before - e.helped, e.shown - e.wrong_before - e.hurt, e.hurt] for e in seen]
    )
    outcomes = outcomes.reshape(-1, 4).astype(np.int64)
    kinds = np.tile(np.arange(4), len(seen))
    which, at = np.repeat(kinds, outcomes.ravel()), np.repeat(np.repeat(places, 4), outcomes.ravel())
    before, after = which >= 2, (which == 0) | (which == 2)
    counts = {
        name: np.bincount(places, outcomes[:, columns].sum(axis=1), len(rows)).astype(np.int64)
        for name, columns in (("shown", [0, 1, 2, 3]), ("helped", [0]), ("hurt", [3]))
    }
    return KindOfEvidence(_trial_ratio(len(rows), at, after, before[:, None].astype(np.float64), quality), counts)


def _prompts(found: PromptTrials, rows: Int64s) -> KindOfEvidence:
    """Prompts of k random candidates, by the effect of the row on their answers."""
    shown = np.zeros(len(rows), np.int64)
    for one in found.shown:
        shown[_places(np.asarray(one, np.int64), rows)[0]] += 1
    return KindOfEvidence(score_ratio(row_effects(found, rows)), {"prompts": shown})


def _answers(row_answers: RowAnswers, rows: Int64s, task: Task, quality: Float64s | None, name: str) -> KindOfEvidence:
    """Answers to the row's own input. With a closed set of answers they are right or wrong; open ones are hardly ever
    the same, and are compared by the score of the row's own output."""
    places, there = _places(row_answers.rows, rows)
    right = np.bincount(places, row_answers.right[there], len(rows)).astype(np.int64)
    key = name.replace("-", "_")
    counts = {f"{key}_asked": np.bincount(places, minlength=len(rows)), f"{key}_right": right}
    scores = np.full(len(rows), np.nan)
    scores[places] = row_answers.scores[there]
    if task.kind == "open" and not np.isnan(scores).all():
        return KindOfEvidence(score_ratio(scores), counts)
    return KindOfEvidence(
        _trial_ratio(len(rows), places, row_answers.right[there], np.empty((len(places), 0)), quality), counts
    )


def _places(wanted: Int64s, rows: Int64s) -> tuple[Int64s, Bools]:
    """Positions in ``rows`` (n,), ascending, of those ``wanted`` (m,) that are among them, and which are, (m,)."""
    at = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
    there = rows[at] == wanted
    return at[there], there


def _trial_ratio(
    count: int,
    places: Int64s,
    hits: Bools,
    features: Float64s,
    quality: Float64s | None,
) -> LogRatio:
    if quality is not None:
        features = np.column_stack([features, quality[places]])
    return trial_ratio(count, places, hits, features)


def _pool_evidence(
    active: Bools,
    indexed: IndexedRows,
    judged: LabelPredictions | None,
    fitted: Posterior,
    known: Mapping[str, KindOfEvidence],
    notes: Sequence[str],
) -> PoolEvidence:
    parts = {"source": fitted.prior, **fitted.parts}
    columns = {name: np.round(values, 4).tolist() for name, values in parts.items()}
    counts = {name: values.tolist() for each in known.values() for name, values in each.counts.items()}
    suggested = _suggested(judged, fitted, known)
    evidence = tuple(
        RowEvidence(
            row.row, row.id, row.source, row.output, round(float(fitted.bad[i]), 6),
            {name: column[i] for name, column in columns.items()},
            {name: column[i] for name, column in counts.items()},
            *suggested[i],
        )
        for i, row in enumerate(indexed.rows) if active[i]
    )  # fmt: skip
    return PoolEvidence(evidence, tuple(parts), tuple(notes))


def _suggested(
    judged: LabelPredictions | None, fitted: Posterior, known: Mapping[str, KindOfEvidence]
) -> list[tuple[str, float]]:
    """The label to give each row that is likely to hurt, and its chance; an empty one for the others."""
    found, label = [("", 0.0)] * len(fitted.bad), known.get("label")
    if judged is not None and label is not None and isinstance(label.kind, LabelRatio):
        labels, chances = label.kind.corrections()
        for place in np.flatnonzero((labels >= 0) & (fitted.bad >= 0.5)).tolist():
            found[place] = judged.names[labels[place]], round(float(chances[place]), 4)
    return found
