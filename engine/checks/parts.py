"""Parts of outputs that their inputs make unlikely: the type of an entity, a label of a set, a value of a field.

A part is one of a few values, and is judged as a label is (`judge_labels`): by classifiers that learn from other rows
and from verified queries, or, without these, from other sources. They see the row's vector and, of a part that is said
of a text in the input, the letters of this text and the words around it: of one sentence all parts have one vector.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..base.arrays import Bools, Float32s, Float64s, Int64s
from ..base.progress import SILENT, Monitor
from ..grading.structured import labels_in
from ..pool.records import Demonstration, Task
from .labels import LEAST, Features, LabelPredictions, Verified, against_other_sources, alternatives, judge_labels
from .posterior import LabelRatio
from .structure import ClosedSet, are_json, parsed, text_of, walk

MOST_SLOTS, MOST_MEMBERS = 6, 50
"""Places in outputs whose values are judged, those with the most values first, for each takes as long as labels do; and
values of one output at a place."""

WHOLE = 0.5
"""Weight of the row's vector beside what is read of a text in the input."""

AROUND, READ, MOST_READ = 3, 40, 10_000
"""Words on each side of a text, characters of it and of each side, and different words and letters, that are read."""


@dataclass(frozen=True, slots=True)
class Part:
    """A ``value`` at the path ``slot`` of the output of the row at this ``place``, said of a ``text`` in the input, of
    all of it where that is empty. ``at``: which of the parts that `walk` finds it is."""

    place: int
    slot: str
    value: str
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class JudgedParts:
    """The ``parts`` (m,) of all rows at one place of their outputs, and the predictions of their values."""

    parts: Sequence[Part]
    judged: LabelPredictions

    @property
    def name(self) -> str:
        """The place in words."""
        return f"'{self.parts[0].slot}'" if self.parts[0].slot else "labels of sets"

    @property
    def told(self) -> bool:
        """Whether inputs tell the values (`Skill`)."""
        return self.judged.skill is None or self.judged.skill.enough

    def strangest(self) -> dict[int, tuple[float, str]]:
        """By place of the row, how probable its least probable part is, and what that and a more probable one say."""
        rows, given, p = np.arange(len(self.parts)), self.judged.labels, self.judged.probabilities
        own, best = np.where(given >= 0, p[rows, given], 1.0), self.judged.suggested()
        told = {}
        at = f" in {self.name}" if self.parts[0].slot else ""
        for i in np.argsort(-own, kind="stable").tolist():  # the least probable one last
            part, name = self.parts[i], self.judged.names[best[i]]
            of = f" of '{part.text[:READ]}'" if part.text else ""
            says = f"says {part.value}{of}{at}, at {own[i]:.2f}; {name} is at {p[i, best[i]]:.2f}"
            told[part.place] = float(own[i]), says
        return told


def parts_of(rows: Sequence[Demonstration], task: Task) -> Iterator[Part]:
    """The parts of outputs, in their order; none of labels, options and free text."""
    if task.kind == "sets":
        for place, row in enumerate(rows):
            members = sorted(labels_in(row.output, task.labels))
            yield from (Part(place, "", name, "", at) for at, name in enumerate(members[:MOST_MEMBERS]))
    elif task.kind == "open" and rows and are_json(values := [parsed(row.output) for row in rows]):
        for place, value in enumerate(values):
            seen = Counter[str]()
            for at, (path, whole, key, part) in enumerate(walk(value)):
                seen[path] += 1
                if isinstance(part, str) and seen[path] <= MOST_MEMBERS:
                    text = whole.get("text") if isinstance(whole, dict) and key != "text" else ""
                    yield Part(place, path, part, text if isinstance(text, str) else "", at)


def judge_parts(
    rows: Sequence[Demonstration],
    task: Task,
    vectors: Float32s,
    groups: Int64s,
    verified: Sequence[Demonstration],
    verified_vectors: Float32s,
    monitor: Monitor = SILENT,
    pruned: Bools | None = None,
) -> tuple[JudgedParts, ...]:
    """The parts at each place of outputs where they are a closed set; ``verified`` (q,) are rows of queries, with
    vectors (q, d), the other arguments those of `judge_labels`. Raises `Cancelled` between folds."""
    slots, taught = defaultdict[str, list[Part]](list), defaultdict[str, list[Part]](list)
    for of_slot, told in ((slots, rows), (taught, verified)):
        for part in parts_of(told, task):
            of_slot[part.slot].append(part)
    closed = [name for name, own in slots.items() if ClosedSet(Counter(part.value for part in own)).values]
    sources = np.asarray(np.unique([row.source for row in rows], return_inverse=True)[1], np.int64)
    every = []
    for name in sorted(closed, key=lambda name: -len(slots[name]))[:MOST_SLOTS]:
        parts, right = slots[name], taught[name]
        of = _places(parts)
        both = [(rows[part.place], part) for part in parts] + [(verified[part.place], part) for part in right]
        x = _features(both, np.concatenate([vectors[of], verified_vectors[_places(right)]]))
        given, kin, left_out = x[: len(parts)], groups[of], None if pruned is None else pruned[of]
        together, values = _together(parts), [part.value for part in parts]
        teachers = Verified(x[len(parts) :], [part.value for part in right], _together(right))
        judged = judge_labels(given, values, kin, monitor, left_out, teachers, together)
        if judged is not None and judged.power is None:
            judged = against_other_sources(judged, given, kin, sources[of], monitor, left_out)
        if judged is not None:
            p = judged.probabilities * alternatives(judged.labels, together, len(judged.names))
            p /= np.maximum(p.sum(axis=1, keepdims=True), LEAST)
            every.append(JudgedParts(parts, replace(judged, probabilities=p)))
    return tuple(every)


def _places(parts: Sequence[Part]) -> Int64s:
    return np.array([part.place for part in parts], np.int64)


def _together(parts: Sequence[Part]) -> Int64s:
    """Equal numbers for what is said of the same text."""
    numbers: dict[tuple[int, str], int] = {}
    return np.array([numbers.setdefault((part.place, part.text), len(numbers)) for part in parts], np.int64)


def _features(parts: Sequence[tuple[Demonstration, Part]], vectors: Float32s) -> Features:
    """What classifiers see of parts with rows and their vectors (m, d): these, and what is read of texts."""
    from scipy.sparse import csr_matrix, hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not any(part.text for _, part in parts):
        return vectors
    words = TfidfVectorizer(analyzer=_read, binary=True, min_df=3, max_features=MOST_READ, dtype=np.float32)
    return hstack([words.fit_transform(parts), csr_matrix(WHOLE * vectors)]).tocsr()


def _read(of: tuple[Demonstration, Part]) -> Iterator[str]:
    """The letters and words of a part's text, and the words around it."""
    (row, part), text = of, of[1].text[:READ]
    at = row.input.find(text)
    end = at + len(part.text)
    before, after = (row.input[max(0, at - READ) : at], row.input[end : end + READ]) if at >= 0 else ("", "")
    yield "a text"  # at least one thing is read of all
    yield "shape " + "".join("x" if c.islower() else "X" if c.isupper() else "9" if c.isdigit() else c for c in text)
    words, padded = text.lower().split(), f" {text} "
    yield f"{len(words)} words, the last {words[-1] if words else ''}"
    yield from (f"in {word}" for word in words)
    yield from (padded[i : i + n] for n in (2, 3, 4) for i in range(len(padded) - n + 1))
    for side, near in (
        ("before", before.lower().split()[: -AROUND - 1 : -1]),
        ("after", after.lower().split()[:AROUND]),
    ):
        yield from (f"{side} {word}" for word in near)
        yield from (f"{i} {side} {word}" for i, word in enumerate(near))


class PartRatio:
    """Parts against their predictions, by row of the ``sources`` (n,). Of a bad row all parts are wrong, or one is, or
    it is bad in another way, each as likely as the others."""

    def __init__(self, every: Sequence[JudgedParts], sources: Int64s) -> None:
        self._count, self._parts = len(sources), [part for slot in every for part in slot.parts]
        self._of, self._ends = _places(self._parts), np.cumsum([len(slot.parts) for slot in every])[:-1]
        judged = [slot.judged for slot in every]
        self._names = [predictions.names for predictions in judged]
        self._ratios = [
            LabelRatio(predictions.probabilities, predictions.labels, of, predictions.power)
            for predictions, of in zip(judged, np.split(sources[self._of], self._ends), strict=True)
        ]
        self._wrong = np.ones(len(self._parts))  # of a bad row, the probability that this part is wrong

    def __call__(self, bad: Float64s | None) -> Float64s:
        """See `LogRatio`."""
        wrong = None if bad is None else np.split(bad[self._of] * self._wrong, self._ends)
        ratios = np.concatenate([ratio(wrong[i] if wrong else None) for i, ratio in enumerate(self._ratios)])
        count = np.maximum(np.bincount(self._of, minlength=self._count), 1)
        every = np.exp(np.minimum(np.bincount(self._of, ratios, self._count), MOST_ODDS))
        single = np.exp(np.minimum(ratios, MOST_ODDS)) / count[self._of]
        total = every + np.bincount(self._of, single, self._count) + 1.0
        self._wrong = (every[self._of] + single) / total[self._of]
        there = np.bincount(self._of, minlength=self._count) > 0
        return np.where(there, np.log(total) - np.log(3.0), 0.0)

    def corrections(self, rows: Sequence[Demonstration]) -> dict[int, tuple[str, float]]:
        """By place, the JSON output with another value of each part that is probably wrong if the row is bad, and the
        probability that it is right then: next to none with a wrong part that is said of all of the input, as the
        other parts went with that one."""
        likeliest = [ratio.corrections() for ratio in self._ratios]
        names = [self._names[i][label] for i, (labels, _) in enumerate(likeliest) for label in labels.tolist()]
        of_text = np.array([bool(part.text) for part in self._parts])
        chances = of_text * np.concatenate([chances for _, chances in likeliest])
        other: dict[int, dict[int, str]] = defaultdict(dict)
        for i in np.flatnonzero((self._wrong >= 0.5) & (chances > 0)).tolist():
            other[self._parts[i].place][self._parts[i].at] = names[i]
        logs = np.log(np.where(self._wrong >= 0.5, self._wrong * chances, 1 - self._wrong) + 1e-9)
        all_right = np.exp(np.bincount(self._of, logs, self._count))
        made = {}
        for place, values in other.items():
            if (value := parsed(rows[place].output)) is not None:
                for at, (_, whole, key, _) in enumerate(walk(value)):
                    if at in values:
                        whole[key] = values[at]
                made[place] = text_of(value), round(float(all_right[place]), 4)
        return made


MOST_ODDS = 50.0
"""Limit of log odds before they are summed as odds."""
