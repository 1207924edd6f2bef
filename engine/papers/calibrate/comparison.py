"""Calibrations of one split by several LLMs, such as a base model and its fine-tuned adapters, side by side from what
the workspace keeps: nothing is asked (paper 001, tables 2 and 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ...base.arrays import Float64s
from ...base.contract import Reported
from ...base.errors import UsageError
from ...evaluate.statistics import compare
from ...store.workspace import Workspace
from . import stored
from .reports import shares_of
from .results import CalibrationVersus


@dataclass(frozen=True, slots=True)
class Answers:
    """First or final answers of a calibration: exact match and F1 with 95 % intervals; ``versus``: exact match against
    the first answers of the first LLM, on the queries both were asked, None for these themselves."""

    accuracy: float
    ci95: tuple[float, float]
    f1: float
    f1_ci95: tuple[float, float]
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
