"""What is known of the active pool, and candidates of a race: what each kind of evidence suggests to prune, or to
relabel, at several strengths.

A candidate may be wrong: the race decides. So each kind of evidence gives a few nested ones, and none is left out for
being uncertain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from ..base.arrays import Float64s, Int64s
from ..base.errors import UsageError
from ..base.progress import SILENT, Event, Monitor
from ..checks.active import ActivePool
from ..checks.check import check_pool
from ..checks.evidence import QUERIES_ANSWERED, row_evidence
from ..checks.results import OUTPUTS, Kind
from ..llm.graded import left_out
from ..pool.records import Query
from ..store import trials
from ..store.decisions import settled_rows
from ..store.demonstrations import active_sources
from ..store.settings import Settings
from ..store.workspace import Workspace
from ..trials.sources import sources_voted_out

MOST_PREFIXES = 8
"""Maximum number of candidates that prune the worst sources."""

RELIABILITY = "reliability"
"""What sources are ranked by once an LLM was asked (``train sources``)."""

STRENGTHS = (0.9, 0.7, 0.5)
"""Rows whose probability to hurt is above one of these are pruned together."""


LIKELY = 0.8
"""Probability from which a label is given to a row instead of pruning it. A wrong label costs as much as a right one
gains, and the probability does not count rows that no label fits: of the suggestions for the sample pool 90 % of those
above this are right, and a sixth of those below."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A revision of the pool to try: ``rows`` (n,), ascending, are all active rows that it prunes. Of these, those of
    ``sources`` are pruned as whole sources, the others as those of a ``strength`` (`_suspects`). ``outputs``: rows that
    get another output instead. ``reason`` says what suggests it."""

    name: str
    rows: Int64s
    sources: tuple[str, ...] = ()
    reason: str = ""
    outputs: Mapping[int, str] = field(default_factory=dict)
    strength: str = ""

    @property
    def changes(self) -> bool:
        """Whether it is not the baseline."""
        return bool(self.rows.size or self.outputs)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for candidates that do the same."""
        return self.rows.tobytes(), tuple(sorted(self.outputs.items()))


@dataclass(frozen=True, slots=True)
class PruningEvidence:
    """What is known of the active pool before a served prompt is asked.

    ``rows`` (n,) ascending and ``sources`` (n,): the active rows, and the source of each. ``reliability``: by source,
    low is bad; ``ranked_by`` says what it is. A source without a value is never pruned as a whole, unless it is among
    ``voted_out``, the sources that the vote of single answers drops. ``suspected`` active rows have a suspicious output
    or text, from the most suspicious to the least; ``posterior`` is the probability by row that it hurts, if known.
    ``corrections``: by row, the most probable right label if its own is wrong, and the probability of that. ``taught``:
    validation queries taught which labels are suspicious. ``answered``: an LLM's answers to them are part of it.
    """

    rows: Int64s
    sources: Sequence[str]
    reliability: Mapping[str, float]
    ranked_by: str
    voted_out: tuple[str, ...]
    suspected: Int64s
    posterior: Mapping[int, float] | None = None
    corrections: Mapping[int, tuple[str, float]] = field(default_factory=dict)
    taught: bool = False
    answered: bool = False

    def of_sources(self, names: Sequence[str]) -> Int64s:
        """The active rows of sources."""
        return self.rows[np.isin(np.array(self.sources, object), np.array(names, object))]

    def agreement(self, candidate: Candidate) -> float:
        """How far the evidence on rows agrees with a candidate: the expected number of pruned rows that hurt, less that
        of those that do not; a relabelled row counts as if it were pruned, and added as one that is right or wrong. A
        suspected row is at least as likely to hurt as not: where labels were drawn at random, suspects with a low
        probability are mostly right, and where LLMs, rules or a classifier wrote them, mostly wrong."""
        pruned = candidate.rows
        if self.posterior is None:
            return 2.0 * np.count_nonzero(np.isin(pruned, self.suspected)) - pruned.size
        suspects = set(self.suspected.tolist())
        wrong = {
            row: max(self.posterior.get(row, 0.0), 0.5 if row in suspects else 0.0)
            for row in (*pruned.tolist(), *candidate.outputs)
        }
        right = [wrong[row] * self.corrections[row][1] for row in candidate.outputs]
        return float(sum(2 * p - 1 for p in wrong.values()) + sum(2 * p - 1 for p in right))

    @property
    def worst_first(self) -> list[str]:
        """The sources that can be pruned, the least reliable first."""
        known = {name: self.reliability[name] for name in dict.fromkeys(self.sources) if name in self.reliability}
        return sorted(known, key=lambda name: (known[name], name))

    @property
    def bad(self) -> tuple[str, ...]:
        """The sources below the widest gap in reliability, the least reliable first; none if all are equal."""
        worst = self.worst_first
        gaps = np.diff([self.reliability[name] for name in worst])
        return tuple(worst[: int(gaps.argmax()) + 1]) if gaps.any() else ()


def propose(evidence: PruningEvidence, k: int, most: int | None = None) -> list[Candidate]:
    """The candidates, keeping everything first. Each leaves at least ``max(k, 1)`` rows, and no two do the same. Of
    more than ``most``, those of the most evidence are proposed: bad sources and rows together, bad sources if an LLM's
    answers rank them, rows relabelled, rows pruned, and others."""
    by_source, by_row, by_both = (list(made(evidence)) for made in (_by_source, _by_row, _by_both))
    relabelled = list(_by_correction(evidence))
    distinct: dict[tuple[object, ...], Candidate] = {}
    for candidate in (*by_source, *by_row, *by_both, *relabelled):
        if candidate.changes and len(candidate.rows) <= len(evidence.rows) - max(k, 1):
            distinct.setdefault(candidate.key, candidate)
    answered = [c for c in by_source if c.sources == evidence.bad and evidence.ranked_by == RELIABILITY]
    ordered = [*by_both[:1], *answered, *relabelled[:1], *by_both[1:], *by_row[::-1], *relabelled[1:], *by_source[::-1]]
    keys = list(dict.fromkeys(candidate.key for candidate in ordered if candidate.key in distinct))
    first = set(keys[: most - 1 if most else None])
    baseline = Candidate("keep everything", np.empty(0, np.int64), reason="the baseline")
    return [baseline, *(candidate for key, candidate in distinct.items() if key in first)]


def unsuspected_shares(rows: Int64s, sources: Sequence[str], suspected: Int64s) -> dict[str, float]:
    """By source, the share of its rows that are not suspected: the reliability if no LLM was asked."""
    clean = ~np.isin(rows, suspected)
    names, of = np.unique(np.array(sources, object), return_inverse=True)
    shares: Float64s = np.bincount(of, clean) / np.bincount(of)
    return dict(zip(names.tolist(), shares.tolist(), strict=True))


def _by_source(evidence: PruningEvidence) -> Iterator[Candidate]:
    worst = evidence.worst_first
    for count in sorted({*_prefixes(len(worst) - 1), len(evidence.bad)} - {0}):
        name = f"worst source: {worst[0]}" if count == 1 else f"worst {count} sources"
        yield _pruned(evidence, name, worst[:count], (), f"lowest {evidence.ranked_by}")
    yield _pruned(evidence, "sources voted out", evidence.voted_out, (), "the vote of single answers")


def _prefixes(most: int) -> list[int]:
    """1, 2, 3, … up to ``most``; with growing steps if these are too many."""
    if most <= MOST_PREFIXES:
        return list(range(1, most + 1))
    return sorted({round(size) for size in np.geomspace(1, most, MOST_PREFIXES).tolist()})


def _by_row(evidence: PruningEvidence) -> Iterator[Candidate]:
    for rows, name, reason in _suspects(evidence):
        yield _pruned(evidence, name, (), rows, reason, name)


def _suspects(evidence: PruningEvidence) -> list[tuple[Int64s, str, str]]:
    """Rows to prune, what to call them and why, at several strengths: fewest rows first.

    The last joins two views. The probability leans on the source: in one that is mostly right it clears suspects of
    which most are wrong, and in one that is mostly wrong it finds rows that `check` does not suspect.
    """
    if evidence.posterior is not None:
        probable = np.array([evidence.posterior.get(row, 0.0) for row in evidence.rows.tolist()])
        strengths = [
            (evidence.rows[probable > least], f"rows with hurts > {least}", f"probability to hurt above {least}")
            for least in STRENGTHS
        ]
        likely = strengths[-1][0]
        either = np.union1d(likely, np.intersect1d(evidence.suspected, np.fromiter(evidence.posterior, np.int64)))
        if len(either) > len(likely):
            strengths.append((either, f"suspects or hurts > {STRENGTHS[-1]}", "suspicious by check, or likely to hurt"))
        return strengths
    half = np.sort(evidence.suspected[: len(evidence.suspected) // 2])
    return [
        (half, "half of the suspects", "the most suspicious half of what check finds"),
        (np.sort(evidence.suspected), "suspects", "suspicious label or text, by check"),
    ]


def _by_both(evidence: PruningEvidence) -> Iterator[Candidate]:
    """Bad sources with suspects among the rest, then the worst half of these with fewer suspects."""
    bad, suspects = evidence.bad, _suspects(evidence)
    if not bad:
        return
    for names, (rows, name, reason) in ((bad, suspects[-1]), (bad[: (len(bad) + 1) // 2], suspects[0])):
        title = f"worst {len(names)} and {name}" if len(names) > 1 else f"{names[0]} and {name}"
        yield _pruned(evidence, title, names, rows, f"lowest {evidence.ranked_by}; {reason}", name)


def _by_correction(evidence: PruningEvidence) -> Iterator[Candidate]:
    """All suspects, alone and with bad sources: relabelled instead of pruned where the right label is `LIKELY`."""
    rows, name, reason = _suspects(evidence)[-1]
    for pruning in (_pruned(evidence, name, (), rows, reason, name), *_by_both(evidence)):
        corrected = _corrected(evidence, pruning)
        if corrected.outputs:
            why = f"{pruning.reason}; the right label of {len(corrected.outputs):,} is likely"
            yield replace(corrected, name=f"{pruning.name}, relabelled", reason=why)


def _corrected(evidence: PruningEvidence, pruning: Candidate) -> Candidate:
    single = np.setdiff1d(pruning.rows, evidence.of_sources(pruning.sources)).tolist()
    corrections = {row: evidence.corrections[row] for row in single if row in evidence.corrections}
    outputs = {row: label for row, (label, chance) in corrections.items() if chance >= LIKELY}
    return replace(pruning, rows=np.setdiff1d(pruning.rows, np.fromiter(outputs, np.int64)), outputs=outputs)


def _pruned(
    evidence: PruningEvidence,
    name: str,
    sources: Sequence[str],
    rows: Int64s | Sequence[int],
    reason: str,
    strength: str = "",
) -> Candidate:
    whole = evidence.of_sources(sources)
    every = np.union1d(whole, np.asarray(rows, np.int64)).astype(np.int64)
    return Candidate(name, every, tuple(sources), reason, strength=strength)


def retold(candidate: Candidate, evidence: PruningEvidence, k: int) -> Candidate:
    """What the candidate would do by other ``evidence`` on the same rows: the same sources, rows of the same strength,
    their corrections. It changes nothing if fewer than ``max(k, 1)`` rows would be left."""
    strengths = _suspects(evidence)
    named = {"": np.empty(0, np.int64)} | {name: rows for rows, name, _ in strengths}
    rows = named.get(candidate.strength, strengths[-1][0])  # suspects that all are likely to hurt have no strength
    told = _pruned(evidence, candidate.name, candidate.sources, rows, candidate.reason, candidate.strength)
    if candidate.outputs:
        told = _corrected(evidence, told)
    left = len(evidence.rows) - len(told.rows)
    return told if left >= max(k, 1) else replace(candidate, rows=np.empty(0, np.int64), sources=(), outputs={})


SUSPICIOUS: tuple[Kind, ...] = ("label", "mismatch", "part", *OUTPUTS, "empty", "cut", "mojibake", "refusal")
"""Findings that speak against a row itself, not against its repetitions."""


def gather(
    workspace: Workspace,
    settings: Settings,
    monitor: Monitor = SILENT,
    relabel: bool = False,
    teachers: Sequence[Query] | None = None,
) -> PruningEvidence:
    """The evidence on the active pool, to ``relabel`` rows with the corrections of suspected labels; calls no LLM.
    Of its work ``monitor`` hears that answers are no evidence, as they were graded otherwise. ``teachers`` as in
    `ActivePool`.
    Sources are ranked by the reliability of the latest ``train sources``, or by the share of rows that `check` does not
    suspect before the first. Raises `UsageError` if the pool is empty."""
    rows, sources = active_sources(workspace)
    pool = ActivePool(workspace, settings, monitor.quiet, teachers)
    for note in [*left_out(workspace, settings, pool.view.task), *filter(None, [pool.unskilled])]:
        monitor.report(Event("evidence", note=note))
    found = check_pool(pool, SUSPICIOUS)
    suspected = np.array(list(dict.fromkeys(one.row for one in found.rows if one.prunes)), np.int64)
    reliability, ranked_by = trials.weights(workspace, "reliability", pool.grading), RELIABILITY
    if not reliability:
        reliability, ranked_by = unsuspected_shares(rows, sources, suspected), "share of rows that are not suspected"
    evidence = row_evidence(pool)
    settled = set(settled_rows(workspace).tolist())
    judged = [row for row in evidence.rows if row.row not in settled] if {*evidence.kinds} > {"source"} else None
    posterior = None if judged is None else {row.row: row.posterior for row in judged}
    suggested = [row for row in evidence.suspects() if row.suggested and row.row not in settled] if relabel else []
    corrections = {row.row: (row.suggested, row.chance) for row in suggested}
    voted_out: tuple[str, ...] = ()
    with suppress(UsageError):  # no trials, or those of fewer queries than folds
        voted_out = sources_voted_out(workspace, settings, monitor.quiet)
    answered = ranked_by == RELIABILITY or not QUERIES_ANSWERED.isdisjoint(evidence.kinds)
    return PruningEvidence(
        rows, sources, reliability, ranked_by, voted_out, suspected, posterior, corrections, pool.taught, answered
    )
