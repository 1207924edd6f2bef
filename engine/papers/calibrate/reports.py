"""Results of calibration on a set of queries: accuracy by round, transitions between right and wrong, and how well
uncertainty separates the two (paper 001, figures 1, 3 and 4, section A.5); and calibrations of one split by several
LLMs, such as a base model and its fine-tuned adapters, side by side from what the workspace keeps (tables 2 and 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ...base.arrays import Float64s
from ...base.contract import Reported
from ...base.errors import LLMError, UsageError
from ...evaluate.statistics import bootstrap_interval, compare, mean_of
from ...llm.marks import Mark, mark_of_failure, scores_of, tally, values_of
from ...pool.answers import token_f1
from ...store.workspace import Workspace
from . import stored
from .results import (
    ArmFigures,
    Bin,
    CalibrationVersus,
    Cost,
    Group,
    GroupArm,
    Groups,
    Histogram,
    Relevance,
    Reliability,
    RoundFigures,
    RoundsVerdict,
    SetFigures,
    Shares,
    Transition,
    Transitions,
)
from .rounds import ARMS, Grades, QueryRounds, Round

BINS = 10
SAMPLING, FIRST = "sampling", "first answers"
"""What rounds are compared with."""


def report_of(
    all_rounds: Mapping[str, Sequence[QueryRounds]],
    grades: Grades,
    rounds: int,
    seed: int = 0,
    costs: Mapping[str, Cost] | None = None,
) -> SetFigures:
    """Figures of each arm, and relevance of documents if it is known, with the histograms of figure 1a; ``costs`` by
    arm.

    A query without any answer is missing, or counts as wrong where its prompt was refused (`llm.marks`); an arm of
    which too much is missing is compared with none. Queries without reference answers are not counted. Raises
    `LLMError` if an arm has no answer.
    """
    marked = {name: [c for c in arm if c.case.query.answers] for name, arm in all_rounds.items()}
    finals = {name: _correctness(arm, [c.final(grades) for c in arm], grades)[0] for name, arm in marked.items()}
    first = next(iter(marked))
    arms: dict[str, ArmFigures] = {}
    for name, arm in marked.items() if marked[first] else ():
        own = replace(_arm(arm, grades, rounds, seed), cost=(costs or {}).get(name))
        if name != first and not (own.undecided or arms[first].undecided):
            own = replace(own, versus=CalibrationVersus(first, **asdict(compare(finals[name], finals[first], seed))))
        arms[name] = own
    verdict = _verdict(marked[first], arms, finals, grades, seed) if arms else None
    return SetFigures(arms, _relevance(all_rounds[first]), len(marked[first]), verdict=verdict)


def _verdict(
    rounds: Sequence[QueryRounds], arms: Mapping[str, ArmFigures], finals: Mapping[str, Float64s], grades: Grades,
    seed: int,
) -> RoundsVerdict | None:  # fmt: skip
    """On the rounds of the first arm; None if it has none, or if too much is missing to compare."""
    name = next(iter(arms))
    has_rounds = any(len(c.rounds) > 1 for c in rounds) and not ARMS[name].samples
    if not has_rounds or arms[name].undecided:
        return None
    other = SAMPLING if SAMPLING in arms and not arms[SAMPLING].undecided else FIRST
    before = finals[other] if other == SAMPLING else _correctness(rounds, [_answer_at(c, 0) for c in rounds], grades)[0]
    compared = compare(finals[name], before, seed)
    if compared.test == "none":
        return None
    both = int((~np.isnan(finals[name] - before)).sum())
    return RoundsVerdict.of(name, both, CalibrationVersus(other, **asdict(compared)))


def groups_of(
    field: str,
    values: Sequence[str],
    all_rounds: Mapping[str, Sequence[QueryRounds]],
    grades: Grades,
    rounds: int,
    seed: int = 0,
) -> Groups:
    """Figures by the value that each query has of a field; queries without reference answers are not counted."""
    groups = {}
    for value in sorted(set(values)):
        arms = {}
        for name, arm in all_rounds.items():
            own = [c for c, its in zip(arm, values, strict=True) if its == value and c.case.query.answers]
            if any(_mark(c, c.final(grades), grades).answered for c in own):
                done = _arm(own, grades, rounds, seed)
                first = next(((its.accuracy, its.f1) for its in done.rounds if its.round == 0), (None, None))
                final = {name: getattr(done, name) for name in ("accuracy", "ci95", "f1", "f1_ci95")}
                arms[name] = GroupArm(**final, first_accuracy=first[0], first_f1=first[1])
        if arms:
            groups[value] = Group(len(own), arms)
    return Groups(field, groups)


def _arm(all_rounds: Sequence[QueryRounds], grades: Grades, rounds: int, seed: int) -> ArmFigures:
    by_round = []
    answers = [[_answer_at(query_rounds, r) for query_rounds in all_rounds] for r in range(rounds + 1)]
    for r, done_rounds in enumerate(answers):
        correct, f1 = _correctness(all_rounds, done_rounds, grades)
        best, best_f1 = _correctness(all_rounds, [query_rounds.final(grades, r) for query_rounds in all_rounds], grades)
        if not any(done_rounds) or np.isnan(correct).all() or np.isnan(best).all():
            continue  # nothing is known of it
        uncertainty, (sure, is_right, _) = finals_uncertainty(done_rounds), _answered(all_rounds, done_rounds, grades)
        by_round.append(
            RoundFigures(
                round=r,
                **shares_of(correct, f1, seed),
                final_accuracy=float(np.nanmean(best)),
                final_f1=float(np.nanmean(best_f1)),
                uncertainty=float(uncertainty.mean()),
                auroc=auroc(sure[is_right == 1.0], sure[is_right == 0.0]),
                stopped=sum(round_ is not None and round_.round < r for round_ in done_rounds),
            )
        )
    finals = [query_rounds.final(grades) for query_rounds in all_rounds]
    outcomes = tally(_mark(*each, grades) for each in zip(all_rounds, finals, strict=True))
    if not outcomes.answered:
        raise LLMError(f"{all_rounds[0].arm}: no query was answered; most often: {outcomes.reason}", outcomes.fix)
    correct, f1 = _correctness(all_rounds, finals, grades)
    uncertainty, is_right, values = _answered(all_rounds, finals, grades)
    right, wrong = uncertainty[is_right == 1.0], uncertainty[is_right == 0.0]
    return ArmFigures(
        about=ARMS[all_rounds[0].arm].about,
        **shares_of(correct, f1, seed),
        auroc=auroc(right, wrong),
        failures=sum(bool(query_rounds.failure) for query_rounds in all_rounds),
        rounds=tuple(by_round),
        transitions=tuple(_transitions(all_rounds, answers, grades)),
        reliability=reliability(uncertainty, is_right),
        brier=mean_of(np.square(1.0 - uncertainty - values)),
        right=histogram(right),
        wrong=histogram(wrong),
        outcomes=outcomes,
    )


def shares_of(correct: Float64s, f1: Float64s, seed: int) -> dict[str, Any]:
    """The means of ``correct`` and ``f1``, both (n,), over what is known, with their intervals, by field."""
    return {
        "accuracy": float(np.nanmean(correct)),
        "ci95": bootstrap_interval(correct, seed),
        "f1": float(np.nanmean(f1)),
        "f1_ci95": bootstrap_interval(f1, seed),
    }


def _answer_at(query_rounds: QueryRounds, round: int) -> Round | None:
    """The answer at a round: the last one if the rounds had stopped before."""
    done_rounds = [round_ for round_ in query_rounds.rounds if round_.round <= round]
    return done_rounds[-1] if done_rounds else None


def _correctness(
    all_rounds: Sequence[QueryRounds], done_rounds: Sequence[Round | None], grades: Grades
) -> tuple[Float64s, Float64s]:
    """Values by the metric, and F1, each (n,); nan where it is not known."""
    marks = [_mark(*each, grades) for each in zip(all_rounds, done_rounds, strict=True)]
    texts = [round_.answer if round_ else None for round_ in done_rounds]
    return values_of(marks), scores_of(token_f1, texts, [each.case.query for each in all_rounds], marks)


def _mark(query_rounds: QueryRounds, round_: Round | None, grades: Grades) -> Mark:
    if round_ is None:
        return mark_of_failure(query_rounds.failure)
    return grades.mark(query_rounds.case.query, round_.answer)


def finals_uncertainty(done_rounds: Sequence[Round | None]) -> Float64s:
    """Uncertainties of the answers, without missing ones."""
    return np.array([round_.uncertainty for round_ in done_rounds if round_ is not None], np.float64)


def _answered(
    all_rounds: Sequence[QueryRounds], done_rounds: Sequence[Round | None], grades: Grades
) -> tuple[Float64s, Float64s, Float64s]:
    """Of the answers whose value is known, (a,): uncertainty, right (1) or wrong (0) by ``least``, and value."""
    marked = [
        (round_.uncertainty, mark.right, mark.value)
        for query_rounds, round_ in zip(all_rounds, done_rounds, strict=True)
        if round_ is not None and (mark := _mark(query_rounds, round_, grades)).right is not None
    ]
    uncertainty, right, values = np.array(marked, np.float64).reshape(-1, 3).T
    return uncertainty, right, values


def _transitions(
    all_rounds: Sequence[QueryRounds], answers: Sequence[Sequence[Round | None]], grades: Grades
) -> list[Transitions]:
    """For each round, the four transitions from the previous answer to this one, right or wrong by the metric's
    ``least``: number, and mean uncertainty of the new answers (figure 4). Queries that had stopped are left out."""
    transitions = []
    for r in range(1, len(answers)):
        both = [i for i, t in enumerate(answers[r]) if t is not None and t.round == r and answers[r - 1][i] is not None]
        turns = [[_mark(all_rounds[i], answers[at][i], grades).right for at in (r - 1, r)] for i in both]
        uncertainty = finals_uncertainty([answers[r][i] for i in both])
        ways = [
            np.array([turn == [was, now] for turn in turns], np.bool_) for was in (True, False) for now in (True, False)
        ]
        transitions.append(Transitions(r, *(Transition(int(way.sum()), mean_of(uncertainty[way])) for way in ways)))
    return transitions


def _relevance(all_rounds: Sequence[QueryRounds]) -> Relevance | None:
    """How the scores of relevant documents differ from those of the others (figure 1a); None if relevance is
    unknown."""
    groups: tuple[list[float], list[float]] = ([], [])
    within = []
    for query_rounds in all_rounds:
        own: tuple[list[float], list[float]] = ([], [])
        for document, score in zip(query_rounds.case.documents, query_rounds.scores, strict=False):
            if score is not None and document.relevant is not None:
                own[not document.relevant].append(score)
        if all(own):
            within.append(auroc(np.array(own[0]), np.array(own[1])))
        for group, scores in zip(groups, own, strict=True):
            group.extend(scores)
    relevant, others = (np.array(group, np.float64) for group in groups)
    if not relevant.size or not others.size:
        return None
    return Relevance(
        documents=int(relevant.size + others.size),
        auroc=auroc(relevant, others),
        auroc_within=mean_of(np.array(within, np.float64)),
        queries_within=len(within),
        relevant=replace(histogram(relevant / 100.0), mean=float(relevant.mean())),
        others=replace(histogram(others / 100.0), mean=float(others.mean())),
    )


def auroc(low: Float64s, high: Float64s) -> float | None:
    """The probability that a value of ``high`` exceeds one of ``low``, ties count half: the area under the ROC curve
    for detecting wrong answers (or irrelevant documents) by their uncertainty. None if either is empty."""
    if not low.size or not high.size:
        return None
    values, counts = np.unique(np.concatenate([low, high]), return_inverse=True)
    below = np.concatenate([[0], np.cumsum(np.bincount(counts[: low.size], minlength=values.size))])
    places = counts[low.size :]
    wins = below[places] + 0.5 * (below[places + 1] - below[places])
    return float(wins.sum() / (low.size * high.size))


def reliability(uncertainty: Float64s, correct: Float64s, bins: int = BINS) -> Reliability:
    """Confidence (1 − uncertainty) against accuracy in bins of equal width, and the expected calibration error: the
    mean difference of the two, weighted by answers (Guo et al. 2017, eq. 3)."""
    confidence = 1.0 - uncertainty
    which = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    rows = []
    error = 0.0
    for b in range(bins):
        inside = which == b
        count = int(inside.sum())
        if count:
            error += count * abs(float(correct[inside].mean()) - float(confidence[inside].mean())) / len(which)
        rows.append(Bin(b / bins, (b + 1) / bins, count, mean_of(confidence[inside]), mean_of(correct[inside])))
    return Reliability(tuple(rows), error if len(which) else None)


def histogram(values: Float64s, bins: int = BINS) -> Histogram:
    """Counts of values in [0, 1] in bins of equal width."""
    counts, _ = np.histogram(np.clip(values, 0.0, 1.0), bins, (0.0, 1.0))
    return Histogram(int(values.size), tuple(counts.tolist()))


@dataclass(frozen=True, slots=True)
class Answers(Shares):
    """First or final answers of a calibration; ``versus``: value against that of the first answers of the first LLM, on
    the queries both were asked, None for these themselves."""

    versus: CalibrationVersus | None


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """The latest finished calibration of the split by one LLM with one arm; a query without an answer is left out."""

    run: int
    llm: str
    arm: str
    rounds: int
    queries: int
    first: Answers
    final: Answers


@dataclass(frozen=True, slots=True)
class CalibrationRuns(Reported):
    """One row for each LLM and arm, in the order in which the LLMs first calibrated the split."""

    kind = "calibration-runs"
    split: str
    runs: tuple[ComparedRun, ...]


def comparison(workspace: Workspace, split: str, seed: int = 0) -> CalibrationRuns:
    """All LLMs that calibrated queries of ``split``. Raises `UsageError` if none did."""
    # those with first answers and final ones
    answered = [
        run
        for run in stored.latest_outcomes(workspace, split)
        if all(any(outcome[part][0] is not None for outcome in run.queries.values()) for part in (0, 1))
    ]
    if not answered:
        raise UsageError(f"no {split} queries have been calibrated yet", f"icl-curate calibrate --split {split}")
    return CalibrationRuns(split, tuple(_compared(run, answered[0], seed) for run in answered))


def _compared(run: stored.Outcomes, reference: stored.Outcomes, seed: int) -> ComparedRun:
    answers = [_answers(run, part, None if (run is reference and part == 0) else reference, seed) for part in (0, 1)]
    return ComparedRun(run.run, run.llm, run.arm, run.rounds, len(run.queries), *answers)


def _answers(run: stored.Outcomes, part: int, reference: stored.Outcomes | None, seed: int) -> Answers:
    pairs = [outcome[part] for outcome in run.queries.values()]
    correct, f1 = (np.array(values, np.float64) for values in zip(*pairs, strict=True))
    versus = None
    if reference is not None:
        common = [query for query in run.queries if query in reference.queries]
        own = _correct([run.queries[query][part] for query in common])
        theirs = _correct([reference.queries[query][0] for query in common])
        versus = CalibrationVersus(reference.llm, **asdict(compare(own, theirs, seed))) if common else None
    return Answers(**shares_of(correct, f1, seed), versus=versus)


def _correct(pairs: Sequence[stored.Pair]) -> Float64s:
    return np.array([correct for correct, _ in pairs], np.float64)
