"""The rounds of a query: which scores its prompts show, when it stops, which answer is final (paper 001, 3.2).

`ARMS` lists the method itself, its ablations (tables 5 and 6) and the baselines.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...base.errors import UsageError
from ...grading.metrics import ACCURACY, Metric
from ...llm.marks import NO_VERDICT, Mark, mark
from ...llm.types import Answer
from ...pool.answers import meaning
from ...pool.prompts import EarlierAnswer, Prompt
from ...pool.records import Query, Task
from .prompts import Case, Frame, first_prompt, round_prompt
from .scores import shown


@dataclass(frozen=True, slots=True)
class Arm:
    """A variant of calibration. ``documents`` and ``answers``: where the scores in prompts come from.

    ``samples``: no rounds, the first prompt is asked again at a temperature. ``final``: the most certain answer, that
    of round 2 (without scores: Huang et al. 2024, as in the paper), or the majority's. ``critique``: no rounds, the
    answer from the document that the LLM judges best (`variants`).
    """

    about: str
    documents: Literal["none", "uncertainty", "relevance", "oracle"] = "none"
    answers: Literal["none", "uncertainty", "oracle"] = "none"
    samples: bool = False
    final: Literal["surest", "second", "vote"] = "surest"
    critique: bool = False

    @property
    def reads_documents_alone(self) -> bool:
        """Needs the answer from each document alone."""
        return self.documents == "uncertainty" or self.critique


ARMS: Mapping[str, Arm] = {
    "full": Arm("scores of documents and earlier answers", "uncertainty", "uncertainty"),
    "answers": Arm("scores of earlier answers only", "none", "uncertainty"),
    "plain": Arm("earlier answers without scores", final="second"),
    "relevance": Arm("document scores from the encoder", "relevance", "uncertainty"),
    "oracle": Arm("scores from the reference answers", "oracle", "oracle"),
    "sampling": Arm("no rounds: the surest of as many samples", samples=True),
    "vote": Arm("no rounds: the majority of as many samples", samples=True, final="vote"),
    "self-rag": Arm("no rounds: the answer from the document judged best", critique=True),
}
ALL = "all"


def arms_named(names: Sequence[str]) -> tuple[str, ...]:
    """The names, once each; `ALL` means every arm. `UsageError` for an unknown one."""
    chosen = list(ARMS) if ALL in names else list(dict.fromkeys(names))
    if unknown := [name for name in chosen if name not in ARMS]:
        raise UsageError(f"unknown arm '{unknown[0]}'", f"--arms with any of: {', '.join((*ARMS, ALL))}")
    return tuple(chosen)


@dataclass(frozen=True, slots=True)
class Grades:
    """How good answers are: by the ``metric``, or, of a judge, by its ``verdicts`` so far on answers to queries
    (`verdict_key`)."""

    task: Task
    metric: Metric = ACCURACY
    verdicts: dict[tuple[str, str, str], Mark] | None = None

    def key(self, query: Query, answer: str) -> str:
        """What the same answers to the query share, and only they."""
        return self.metric.key(answer, query, self.task)

    def says(self, query: Query, text: str) -> bool:
        """Whether a text is right by the metric, whatever a judge would say."""
        return self.metric.is_right(self.metric.score(text, query, self.task))

    def mark(self, query: Query, answer: str) -> Mark:
        """Of an answer to a query with references."""
        if self.verdicts is not None:
            return self.verdicts.get(verdict_key(query, answer), Mark("unjudged", NO_VERDICT))
        return mark(Answer(answer), self.metric.score(answer, query, self.task), self.metric)


def verdict_key(query: Query, answer: str) -> tuple[str, str, str]:
    """Under which a verdict is kept."""
    return query.id, query.input, answer


@dataclass(frozen=True, slots=True)
class Round:
    """The answer of one round; ``score`` is 0 … 100 relative to the mean of the set."""

    round: int
    prompt: Prompt
    answer: str
    uncertainty: float
    score: float


@dataclass(slots=True)
class QueryRounds:
    """The rounds of one query under one arm; ``scores`` are those of its documents, empty if none are shown."""

    case: Case
    arm: str
    scores: tuple[float | None, ...] = ()
    rounds: list[Round] = field(default_factory=list)
    failure: str = ""
    stopped: bool = False

    def prompt(self, frame: Frame, grades: Grades, seed: int) -> Prompt:
        """The prompt of the next round."""
        if ARMS[self.arm].samples:
            return first_prompt(self.case, frame)
        answers = [
            EarlierAnswer(round_.answer, shown(self._score_shown(round_, grades, seed))) for round_ in self.rounds
        ]
        return round_prompt(self.case, frame, tuple(map(shown, self.scores)), answers)

    def take(self, round_: Round, grades: Grades, settle: float | None) -> None:
        """Add a round's answer, and stop if it has settled: it agrees with the previous one and its score moved by
        ``settle`` points at most."""
        self.rounds.append(round_)
        if settle is not None and len(self.rounds) > 1:
            before, now = self.rounds[-2:]
            same = grades.key(self.case.query, before.answer) == grades.key(self.case.query, now.answer)
            self.stopped = same and abs(before.score - now.score) <= settle

    def final(self, grades: Grades, upto: int | None = None) -> Round | None:
        """The final answer after round ``upto`` (default: the last)."""
        rounds = [round_ for round_ in self.rounds if upto is None or round_.round <= upto]
        if not rounds:
            return None
        rule = ARMS[self.arm].final
        if rule == "second":
            return rounds[min(2, len(rounds) - 1)]
        if rule == "vote":
            answers = [grades.key(self.case.query, round_.answer) for round_ in rounds]
            return rounds[answers.index(Counter(answers).most_common(1)[0][0])]
        return min(rounds, key=lambda round_: (round_.uncertainty, round_.round))

    def _score_shown(self, round_: Round, grades: Grades, seed: int) -> float | None:
        kind = ARMS[self.arm].answers
        if kind == "oracle":
            query, answer = self.case.query, round_.answer
            return oracle_score(grades.says(query, answer), seed, query, f"answer {meaning(answer)}")
        return round_.score if kind == "uncertainty" else None


def oracle_scores(case: Case, seed: int) -> tuple[float | None, ...]:
    """0 … 20 for relevant documents, 80 … 100 for the others (section 5.1); None if relevance is not known."""
    return tuple(
        None if d.relevant is None else oracle_score(d.relevant, seed, case.query, f"document {i}")
        for i, d in enumerate(case.documents)
    )


def oracle_score(good: bool, seed: int, query: Query, what: str) -> float:
    """Random, but depends only on seed, query and item."""
    digest = hashlib.blake2b(f"{seed}\0{query.id}\0{query.input}\0{what}".encode(), digest_size=8).digest()
    draw = 20.0 * int.from_bytes(digest) / 2**64
    return draw if good else 80.0 + draw
