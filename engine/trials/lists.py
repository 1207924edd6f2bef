"""Ranked lists with the answer and the utility of each item: the input of every estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.arrays import Float64s, Int64s

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RankedLists:
    """N ranked lists over C sources, concatenated: list n is ``offsets[n]:offsets[n+1]``, best first.

    names: the C sources' names.
    sources: (T,) int32, the source of each item.
    utilities: (T,) float64, the utility of the answer given with the item alone.
    answers: (T,) int32, the answer's number: equal numbers within a list are equal answers, 0..(answers in list)−1.
    offsets: (N + 1,) int64.
    documents: (T,) int32, the document of each item; equal to ``sources`` if each source is one document.
    source_of: (D,) int32, the source of each document.
    voted: the answers of a set are counted, and its utility is that of the commonest. Else it is the mean of those of
      its items (paper 003, equation 5, with the number of items for K).
    """

    names: tuple[str, ...]
    sources: npt.NDArray[np.int32]
    utilities: Float64s
    answers: npt.NDArray[np.int32]
    offsets: Int64s
    documents: npt.NDArray[np.int32]
    source_of: npt.NDArray[np.int32]
    voted: bool = True

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64s:
        """(N,) how many items each list has."""
        return np.diff(self.offsets)

    @property
    def hits(self) -> Int64s:
        """(C,) how many items each source has over all lists."""
        return np.bincount(self.sources, minlength=len(self.names))

    @property
    def repeated(self) -> float:
        """The share of the items whose answer another item of their list has, too; 1 without items."""
        owner = np.repeat(np.arange(len(self)), self.lengths)
        _, which, count = np.unique([owner, self.answers], axis=1, return_inverse=True, return_counts=True)
        return float((count[which.ravel()] > 1).mean()) if len(self.answers) else 1.0

    def take(self, lists: npt.ArrayLike) -> RankedLists:
        """The lists of the given numbers (or mask), over the same sources and documents."""
        chosen = np.arange(len(self))[np.asarray(lists)]
        sizes = self.lengths[chosen]
        ends = np.cumsum(sizes)
        at = np.arange(sizes.sum()) + np.repeat(self.offsets[chosen] - (ends - sizes), sizes)
        return replace(
            self,
            sources=self.sources[at],
            utilities=self.utilities[at],
            answers=self.answers[at],
            documents=self.documents[at],
            offsets=np.concatenate([[0], ends]).astype(np.int64),
        )


def ranked_lists(
    sources: Sequence[Sequence[str]],
    answers: Sequence[Sequence[Any]],
    utilities: Sequence[Sequence[float]],
    *,
    documents: Sequence[Sequence[str]] | None = None,
    names: Sequence[str] | None = None,
) -> RankedLists:
    """Lists of names, answers (any hashable values) and utilities, as arrays.

    ``documents`` names the document of each item if sources have several (a site's pages). ``names`` fixes the sources
    and their order, to which new ones are appended; without it they are sorted. Raises ValueError if the lists of a row
    differ in length.
    """
    sizes = [len(row) for row in sources]
    for other in (answers, utilities, documents):
        if other is not None and [len(row) for row in other] != sizes:
            raise ValueError("each list needs one source, one answer, one utility (and one document) an item")
    every = list(names or ())
    every += sorted({name for row in sources for name in row}.difference(every))
    number = {name: i for i, name in enumerate(every)}
    ids = np.array([number[name] for row in sources for name in row], dtype=np.int32)
    if documents is None:
        document_ids, source_of = ids, np.arange(len(every), dtype=np.int32)
    else:
        pairs = [pair for row in zip(sources, documents, strict=True) for pair in zip(*row, strict=True)]
        document = {pair: i for i, pair in enumerate(sorted(set(pairs)))}
        document_ids = np.array([document[pair] for pair in pairs], dtype=np.int32)
        source_of = np.array([number[source] for source, _ in document], dtype=np.int32)
    numbered: list[int] = []
    for row in answers:
        seen: dict[Any, int] = {}
        numbered.extend(seen.setdefault(answer, len(seen)) for answer in row)
    return RankedLists(
        names=tuple(every),
        sources=ids,
        utilities=np.array([value for row in utilities for value in row], dtype=np.float64),
        answers=np.array(numbered, dtype=np.int32),
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        documents=document_ids,
        source_of=source_of,
    )
