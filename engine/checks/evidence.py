"""What is known of each row of the active pool, joined in one probability that it hurts: its output is wrong for its
input.

The evidence: the label against classifiers trained without the row, or free text against its input and its faults; the
row's answers as the only demonstration of validation queries (``train sources``), its steps in prompts of the ranker
(``train ranker``), the LLM's answers to its own input without shots (``train topics``) and with its nearest other rows
(``train rows``), and its source.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..base.arrays import Bools, Float64s, Int64s
from ..base.contract import Reported
from ..base.errors import UsageError
from ..llm.graded import left_out
from ..pool.choices import choice_of
from ..pool.records import Task
from ..store import trials
from ..store.trials import PromptTrials, RowAnswers
from .active import ActivePool, IndexedRows
from .labels import LabelPredictions
from .outputs import corrections, levels
from .parts import PartRatio
from .posterior import SHARE, LabelRatio, LogRatio, Posterior, fault_ratios, fit, score_ratio, trial_ratio

ANSWERS = ("trials", "flips", "prompts", "zero-shot", "own")
"""The kinds of evidence that an LLM's answers give."""

QUERIES_ANSWERED = frozenset({"trials", "flips", "prompts"})
"""Those of them that its answers to validation queries give."""

LIKELY = 0.5
"""Posterior from which on a row is more likely to hurt than not."""

DOUBTED = 0.3
"""Posterior from which on another output is suggested, and `check` names the label: below .5, as one wrong row costs
more than one of many right ones is worth."""

PENALTIES, FOLDS = np.geomspace(0.3, 100.0, 9), 5
"""Penalties of the regression on rows, in prompts, of which cross-validation in so many folds takes one."""


def row_effects(tried: PromptTrials, rows: Int64s) -> Float64s:
    """(n,) for ``rows`` (n,), ascending: the change in accuracy if a prompt shows the row, shrunk towards none; nan for
    a row that no prompt showed. Ridge regression on who was in the prompt, of what is left when the other prompts of
    the query are known."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import lsqr

    effects = np.full(len(rows), np.nan)
    prompts = np.repeat(np.arange(len(tried.shown)), [len(shown) for shown in tried.shown])
    shown_rows = np.array([row for shown in tried.shown for row in shown], np.int64)
    there = np.isin(shown_rows, rows)
    if not there.any():
        return effects
    cells = prompts[there], np.searchsorted(rows, shown_rows[there])
    x = csr_matrix((np.ones(len(cells[0])), cells), (len(tried.shown), len(rows)))  # who was in each prompt
    rest = _unexplained(tried)
    fold = np.random.default_rng(0).permutation(len(rest)) % FOLDS

    def fitted(train: Int64s, penalty: float) -> Float64s:
        # argmin over b of |rest − x b|² + penalty |b|²
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


def _unexplained(tried: PromptTrials) -> Float64s:
    """(n,) the value of each answer, minus the mean of the other prompts of its query, which is shrunk
    towards that of all with the weight of two prompts."""
    queries = np.unique(tried.queries, return_inverse=True)[1]
    values = tried.values
    return np.asarray(values - _of_others(values, queries, float(values.mean())))


def _of_others(right: Float64s, queries: Int64s, mean: float) -> Float64s:
    """For each answer (n,) the mean of the other answers to its query, shrunk to ``mean`` with the weight of two."""
    hits, count = np.bincount(queries, right), np.bincount(queries)
    return np.asarray((hits[queries] - right + 2 * mean) / (count[queries] + 1))


SURE = 0.9
"""Probability from which on `suspects prune` prunes."""


@dataclass(frozen=True, slots=True)
class RowEvidence(Reported):
    """A row of the active pool. ``posterior``: the probability that it hurts. ``parts``: log odds, which add up to
    those of the posterior; ``source`` is that of the row's source, the others are positive if they speak against the
    row. ``counts``: the trials, steps and answers behind them. ``suggested``: the most probable other output of a row
    that is `DOUBTED`, or empty; ``chance``: the probability that it is right if the row's own is wrong.
    """

    row: int
    id: str
    source: str
    input: str
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

    def suspects(self, least: float = LIKELY) -> list[RowEvidence]:
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


def row_evidence(pool: ActivePool, answers: Collection[str] = ANSWERS) -> PoolEvidence:
    """The evidence of all rows of the active pool, of an LLM's ``answers`` that of the kinds given; no LLM is called
    and nothing is encoded. Pruned rows have a part in the fit, as what is known of them tells of their sources. Raises
    `UsageError` if the pool is empty, `Cancelled` between steps."""
    indexed, notes = pool.indexed, []
    active = np.isin(indexed.numbers, pool.view.rows)
    if pool.fault is not None:
        notes.append(f"labels not judged: {pool.fault.what}; {pool.fault.fix}")
    if pool.unskilled:
        notes.append(pool.unskilled)
    if pool.untold:
        notes.append(pool.untold)
    notes += left_out(pool.workspace, pool.settings, pool.view.task)
    label_predictions, start = indexed.label_predictions, None
    if indexed.contradicted:
        supported = _supported(indexed)
        label_predictions = pool.judged_by(supported & active)
        if label_predictions is None:
            notes.append(f"suspected labels left out: {indexed.contradicted}")
        else:
            start = np.where(supported, SHARE, 1 - SHARE)
            notes.append(f"labels judged by the rows that answers support: {indexed.contradicted}")
    sources, within = _sources(indexed), None
    kinds = _kinds(pool, sources, label_predictions, answers)
    if label_predictions is not None:  # of one source and one label: who mislabels by a rule does so with some labels
        pairs = np.stack([sources, label_predictions.labels], axis=1)
        within = np.asarray(np.unique(pairs, axis=0, return_inverse=True)[1].ravel(), np.int64)
    fitted = fit(sources, {name: given.kind for name, given in kinds.items()}, within, start)
    parts = {"source": fitted.prior, **fitted.parts}
    columns = {name: np.round(values, 4).tolist() for name, values in parts.items()}
    counts = {name: values.tolist() for given in kinds.values() for name, values in given.counts.items()}
    suggested = _suggested(indexed, label_predictions, fitted, kinds)
    evidence = tuple(
        RowEvidence(
            row.row, row.id, row.source, row.input, row.output, round(float(fitted.bad[i]), 6),
            {name: column[i] for name, column in columns.items()},
            {name: column[i] for name, column in counts.items()},
            *suggested[i],
        )
        for i, row in enumerate(indexed.rows) if active[i]
    )  # fmt: skip
    return PoolEvidence(evidence, tuple(parts), tuple(notes))


def _supported(indexed: IndexedRows) -> Bools:
    """The rows that answers support where they contradict the suspected labels, (m,): those with a suspected label, and
    the others of a source most of whose labels are suspected."""
    of = _sources(indexed)
    return indexed.refuted | (np.bincount(of, indexed.refuted) > np.bincount(of) / 2)[of]


def _sources(indexed: IndexedRows) -> Int64s:
    """Numbers (m,) from 0 of the rows' sources."""
    return np.asarray(np.unique([row.source for row in indexed.rows], return_inverse=True)[1], np.int64)


def _kinds(
    pool: ActivePool, sources: Int64s, label_predictions: LabelPredictions | None, answers: Collection[str]
) -> dict[str, KindOfEvidence]:
    """All kinds of evidence there are of the indexed rows, with ``sources`` (m,)."""
    workspace, indexed, rows = pool.workspace, pool.indexed, pool.indexed.numbers
    kinds: dict[str, KindOfEvidence] = {}
    quality = ratio = None
    if label_predictions is not None:
        p, labels, power = label_predictions.probabilities, label_predictions.labels, label_predictions.power
        ratio = LabelRatio(p, labels, sources, power, of_label=True)
        kinds["label"] = KindOfEvidence(ratio, {})
        quality = own_odds(label_predictions)
    if indexed.mismatches is not None and indexed.mismatches.usable:
        ratios = indexed.mismatches.log_ratios
        if indexed.faults or indexed.parts:
            # half of the bad rows are bad in another way, and fit their inputs as good ones do
            ratios = np.logaddexp(ratios, 0.0) - np.log(2.0)
        kinds["match"] = KindOfEvidence(lambda _: ratios, {})
    if indexed.parts:
        kinds["part"] = KindOfEvidence(PartRatio(indexed.parts, sources), {})
    for kind, of_faults in fault_ratios(levels(indexed.faults, len(rows))).items():
        kinds[kind] = KindOfEvidence(of_faults, {})
    if "trials" in answers and (single := trials.latest(workspace, pool.grading)) is not None:
        kinds["trials"] = _trials(single, rows, quality)
    if "flips" in answers and (effects := trials.row_flips(workspace, pool.grading)):
        kinds["flips"] = _flips(effects, rows, quality)
    if "prompts" in answers and (subsets := trials.latest_prompts(workspace, pool.grading)) is not None:
        kinds["prompts"] = _prompts(subsets, rows)
    for name, zero_shot in (("zero-shot", True), ("own", False)):
        if name not in answers:
            continue
        row_answers = trials.latest_answers(workspace, zero_shot, pool.grading)
        if np.isin(row_answers.rows, rows).any():
            labeller = None
            if label_predictions is not None and ratio is not None and not zero_shot:
                labeller = ratio.answered(_said(row_answers, rows, label_predictions.names))
            kinds[name] = _answers(row_answers, rows, pool.view.task, quality, name, labeller)
    return kinds


def own_odds(label_predictions: LabelPredictions) -> Float64s:
    """Log odds (n,) of each row's own label by the classifiers, those of rows not judged being the median.

    A row whose input is hard to tell apart has both a doubtful label and wrong answers, whatever its class: given this
    feature, trials count for what they say beyond the label.
    """
    places = np.flatnonzero(label_predictions.labels >= 0)
    own = np.clip(label_predictions.probabilities[places, label_predictions.labels[places]], 1e-3, 1 - 1e-3)
    odds = np.log(own) - np.log1p(-own)
    all_odds = np.full(len(label_predictions.labels), np.median(odds))
    all_odds[places] = odds
    return all_odds


def _trials(tried: trials.Trials, rows: Int64s, quality: Float64s | None) -> KindOfEvidence:
    """Single demonstrations on validation queries. Features: how often the other demonstrations of the query were
    right, and the rank."""
    queries = np.unique(tried.queries, return_inverse=True)[1]
    right = tried.right.astype(np.float64)
    others = _of_others(right, queries, (right.sum() + 1) / (len(right) + 2))
    first = np.flatnonzero(np.r_[True, queries[1:] != queries[:-1]]) if len(queries) else np.empty(0, np.int64)
    rank = np.arange(len(queries)) - np.repeat(first, np.diff(np.r_[first, len(queries)]))
    features = np.column_stack([np.log(others) - np.log1p(-others), np.log1p(rank)])
    places, there = _places(tried.rows, rows)
    counts = {
        "trials": np.bincount(places, minlength=len(rows)),
        "right": np.bincount(places, tried.right[there], len(rows)).astype(np.int64),
    }
    return KindOfEvidence(_trial_ratio(len(rows), places, right[there] > 0, features[there], quality), counts)


def _flips(effects: Sequence[trials.RowFlips], rows: Int64s, quality: Float64s | None) -> KindOfEvidence:
    """Prompts of the ranker to which the row was added: right or wrong after, given right or wrong before."""
    places, there = _places(np.array([e.row for e in effects], np.int64), rows)
    figures = np.array([(e.shown, e.wrong_before, e.helped, e.hurt) for e in effects], np.int64)[there]
    shown, wrong_before, helped, hurt = figures.T
    stayed_wrong, stayed_right = wrong_before - helped, shown - wrong_before - hurt
    outcomes = np.column_stack([helped, stayed_wrong, stayed_right, hurt])
    right_before, right_after = (False, False, True, True), (True, False, True, False)
    at, before, after = (
        np.repeat(np.broadcast_to(values, outcomes.shape).ravel(), outcomes.ravel())
        for values in (places[:, None], right_before, right_after)
    )
    counts = {
        name: np.bincount(places, values, len(rows)).astype(np.int64)
        for name, values in (("shown", shown), ("helped", helped), ("hurt", hurt))
    }
    return KindOfEvidence(_trial_ratio(len(rows), at, after, before[:, None].astype(np.float64), quality), counts)


def _prompts(tried: PromptTrials, rows: Int64s) -> KindOfEvidence:
    """Prompts of k random candidates, by the effect of the row on their answers."""
    count = np.zeros(len(rows), np.int64)
    for shown in tried.shown:
        count[_places(np.asarray(shown, np.int64), rows)[0]] += 1
    return KindOfEvidence(score_ratio(row_effects(tried, rows)), {"prompts": count})


def _answers(
    row_answers: RowAnswers, rows: Int64s, task: Task, quality: Float64s | None, name: str, labeller: LogRatio | None
) -> KindOfEvidence:
    """Answers to the row's own input: those of a ``labeller`` (`LabelRatio.answered`), if labels are judged. Else, with
    a closed set of answers, they are right or wrong; open ones are hardly ever the same, and are compared by the score
    of the row's own output."""
    places, there = _places(row_answers.rows, rows)
    right = np.bincount(places, row_answers.right[there], len(rows)).astype(np.int64)
    key = name.replace("-", "_")
    counts = {f"{key}_asked": np.bincount(places, minlength=len(rows)), f"{key}_right": right}
    if labeller is not None:
        return KindOfEvidence(labeller, counts)
    scores = np.full(len(rows), np.nan)
    scores[places] = row_answers.scores[there]
    if task.kind == "open" and not np.isnan(scores).all():
        return KindOfEvidence(score_ratio(scores), counts)
    hits, none = row_answers.right[there], np.empty((len(places), 0))
    return KindOfEvidence(_trial_ratio(len(rows), places, hits, none, quality), counts)


def _said(row_answers: RowAnswers, rows: Int64s, names: Sequence[str]) -> Int64s:
    """The answers (n,) to the inputs of ``rows`` (n,) as indices of ``names``, -1 for none of them."""
    said = np.full(len(rows), -1)
    places, there = _places(row_answers.rows, rows)
    answers = (answer for answer, kept in zip(row_answers.answers, there.tolist(), strict=True) if kept)
    for place, answer in zip(places.tolist(), answers, strict=True):
        chosen = choice_of(answer, names)
        said[place] = -1 if chosen is None else chosen
    return said


def _places(wanted: Int64s, rows: Int64s) -> tuple[Int64s, Bools]:
    """Positions in ``rows`` (n,), ascending, of those ``wanted`` (m,) that are among them, and which are, (m,)."""
    at = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
    there = rows[at] == wanted
    return at[there], there


def _trial_ratio(count: int, places: Int64s, hits: Bools, features: Float64s, quality: Float64s | None) -> LogRatio:
    """`trial_ratio`, given the odds of the row's label (n,), too."""
    if quality is not None:
        features = np.column_stack([features, quality[places]])
    return trial_ratio(count, places, hits, features)


def _suggested(
    indexed: IndexedRows, judged: LabelPredictions | None, fitted: Posterior, kinds: Mapping[str, KindOfEvidence]
) -> list[tuple[str, float]]:
    """The output to give each row that is doubted, and its chance; an empty one for the others. Parts are corrected
    where nothing else speaks against the row, for then all of its output may be another's."""
    suggested = [("", 0.0)] * len(fitted.bad)
    parts = kinds["part"].kind if "part" in kinds else None
    of_parts = parts.corrections(indexed.rows) if isinstance(parts, PartRatio) else {}
    others = [values for name, values in fitted.parts.items() if name != "part"]
    of_parts = {place: made for place, made in of_parts.items() if all(values[place] <= 0 for values in others)}
    for place, correction in (of_parts | corrections(indexed.faults)).items():
        if fitted.bad[place] >= DOUBTED:
            suggested[place] = correction
    if judged is not None and isinstance(ratio := kinds["label"].kind, LabelRatio):
        labels, chances = ratio.corrections()
        for place in np.flatnonzero((labels >= 0) & (fitted.bad >= DOUBTED)).tolist():
            suggested[place] = judged.names[labels[place]], round(float(chances[place]), 4)
    return suggested
