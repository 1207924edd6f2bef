"""BM25 as an inverted index whose scores are bit-identical to rank-bm25's ``BM25Okapi``.

Okapi BM25 in the ATIRE form (Trotman, Jia and Crane 2014) with the negative inverse document frequencies raised to
epsilon times their average. rank-bm25 loops over every document for every term of the query; here a query reads only
the postings of its own terms. The bits agree because the same float64 operations run in the same order: two logarithms
by libm, the average summed over terms in order of first appearance, terms added in the query's order, repeats included.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Bools, Float64s, Int64s, positions_of, top_k
from ..base.errors import WorkspaceError
from ..base.progress import SILENT, Event, Monitor
from ..pool.words import words_in
from ..shards.over import over_shards
from ..shards.shard import INLINE, Arrays, Engine, packed, unpacked
from .checked import map_sealed, save_sealed

K1, B, EPSILON = 1.5, 0.75, 0.25
"""The defaults of ``BM25Okapi``."""

TASK = "bm25-index"
FILE = "bm25.safetensors"
TOKENISER = "lower-case words, version 2"
WEIGHT_CACHE_BYTES = 256 << 20
"""Maximum memory for the cached weights of terms."""

_LETTER = re.compile(r"\([A-Za-z]\)")
_DOCUMENTS, _CHARACTERS = 32_768, 1 << 23
"""Documents, and about how many characters of them, inverted at once."""


def tokenise(text: str) -> list[str]:
    """The words of a text in lower case, without option letters such as ``(A)``."""
    if "(" in text:
        text = _LETTER.sub(" ", text)
    return words_in(text.lower())


@dataclass(frozen=True, slots=True)
class _Postings:
    """Where each term occurs: term t's postings are ``documents[starts[t]:starts[t + 1]]``, ascending.

    ``order`` is the position of a posting's first occurrence in the concatenated text of all documents. It gives the
    order in which the terms of any subset of the documents first appear.
    """

    starts: Int64s  # (terms + 1,)
    documents: NDArray[np.int32]  # (postings,) position of the document in rows
    counts: NDArray[np.uint32]  # (postings,) occurrences of the term in the document
    order: Int64s  # (postings,)

    def restricted(self, retained: Bools) -> _Postings:
        """The postings of the documents in ``retained`` (documents,), renumbered without gaps."""
        hits = np.flatnonzero(retained[self.documents])
        renumbered = (np.cumsum(retained) - 1).astype(np.int32)
        return _Postings(
            np.searchsorted(hits, self.starts),
            renumbered[self.documents[hits]],
            self.counts[hits],
            self.order[hits],
        )


class _Vocabulary:
    """Maps terms to numbers by bisection in sorted bytes, so that a memory map needs no loading."""

    def __init__(self, terms: NDArray[np.uint8], ends: Int64s, numbers: Int64s) -> None:
        self.terms = terms  # the sorted terms in UTF-8, one after the other
        self.ends = ends  # (terms + 1,) start of each term, which is the end of the one before it
        self.numbers = numbers  # (terms,)
        self._bytes = memoryview(terms.data)
        self._known: dict[str, int] = {}

    @classmethod
    def of(cls, numbered: Iterable[str]) -> _Vocabulary:
        """From the terms in the order of their numbers."""
        encoded = [term.encode("utf-8", "surrogatepass") for term in numbered]
        numbers = sorted(range(len(encoded)), key=encoded.__getitem__)
        ends = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(encoded[i]) for i in numbers], out=ends[1:])
        blob = np.frombuffer(b"".join(encoded[i] for i in numbers), np.uint8)
        return cls(blob, ends, np.array(numbers, np.int64))

    def __len__(self) -> int:
        return len(self.numbers)

    def number(self, term: str) -> int:
        """The term's number, -1 for a term that is in no document."""
        known = self._known.get(term)
        if known is None:
            known = self._known[term] = self._find(term.encode("utf-8", "surrogatepass"))
        return known

    def _find(self, term: bytes) -> int:
        at = bisect_left(range(len(self)), term, key=self._term)
        return int(self.numbers[at]) if at < len(self) and self._term(at) == term else -1

    def _term(self, at: int) -> bytes:
        return bytes(self._bytes[self.ends[at] : self.ends[at + 1]])


class BM25Index:
    """A ranking index over documents with dense row numbers.

    ``rows`` (n,) int64, ascending; every score array is in this order. Created by `build`, `load` and `restricted`.
    """

    def __init__(self, rows: Int64s, lengths: NDArray[np.int32], postings: _Postings, vocabulary: _Vocabulary) -> None:
        self.rows = rows
        self._lengths = lengths
        self._postings = postings
        self._vocabulary = vocabulary
        self._idf = _idf(postings, len(rows))
        self._norm = _length_norm(lengths)
        self._weights: dict[int, Float64s] = {}
        self._room = WEIGHT_CACHE_BYTES

    def __len__(self) -> int:
        return len(self.rows)

    def restricted(self, active: Bools) -> BM25Index:
        """The index that would result from indexing only the rows with ``active[row]``.

        ``active`` (rows of the workspace,) bool. Document frequencies, N, the average length and the epsilon floor are
        those of the active rows only. Rows past the end of ``active`` count as not active. One pass over the postings.
        """
        retained = np.zeros(len(self.rows), np.bool_)
        known = self.rows < len(active)
        retained[known] = active[self.rows[known]]
        if retained.all():
            return self
        return BM25Index(
            self.rows[retained], self._lengths[retained], self._postings.restricted(retained), self._vocabulary
        )

    def scores(self, query: str) -> Float64s:
        """BM25 of every document for the query: (n,), aligned with `rows`."""
        total = np.zeros(len(self.rows))
        starts = self._postings.starts
        for word in tokenise(query):
            term = self._vocabulary.number(word)
            if term < 0 or starts[term] == starts[term + 1]:
                continue
            weights = self._weights_of(term)
            if len(weights) == len(total):
                total += weights
            else:
                total[self._postings.documents[starts[term] : starts[term + 1]]] += weights
        return total

    def top(self, query: str, k: int, exclude: Collection[int] = ()) -> tuple[Int64s, Float64s]:
        """The ``k`` best rows for the query and their scores, best first, ties to the lower row number.

        Rows in ``exclude`` are never returned; fewer than ``k`` are returned if the index has no more. A document that
        shares no word with the query scores 0 and comes after those that do.
        """
        scores = self.scores(query)
        left_out = positions_of(self.rows, exclude)
        scores[left_out] = -np.inf
        best = top_k(scores, min(k, len(scores) - len(left_out)))
        return self.rows[best], scores[best]

    def top_many(
        self, queries: Sequence[str], k: int, exclude: Sequence[Collection[int]] = (), monitor: Monitor = SILENT
    ) -> list[tuple[Int64s, Float64s]]:
        """`top` for each query; ``exclude`` is empty or holds one collection of rows for each query."""
        best = []
        for i, query in enumerate(queries):
            if i % 256 == 0:
                monitor.check()
                monitor.report(Event("bm25", i, len(queries)))
            best.append(self.top(query, k, exclude[i] if exclude else ()))
        monitor.report(Event("bm25", len(queries), len(queries)))
        return best

    def words(self, query: str, rows: Sequence[int]) -> list[list[tuple[str, float]]]:
        """What each word of the query adds to the score of each of the rows, largest first, repeated words summed;
        words that add nothing are left out. `KeyError` for a row that is not in the index."""
        at = np.searchsorted(self.rows, np.asarray(rows, np.int64))
        for row, place in zip(rows, at.tolist(), strict=True):
            if place == len(self.rows) or self.rows[place] != row:
                raise KeyError(row)
        norm, wanted = self._norm[at], at.astype(np.int32)  # of the postings' type: searching copies none of them
        added: list[dict[str, float]] = [{} for _ in rows]
        for word, times in Counter(tokenise(query)).items():
            term = self._vocabulary.number(word)
            span = slice(*self._postings.starts[term : term + 2].tolist()) if term >= 0 else slice(0, 0)
            documents, counts = self._postings.documents[span], self._postings.counts[span]
            places = documents.searchsorted(wanted)
            for i, place in enumerate(places.tolist()):
                if place < len(documents) and documents[place] == wanted[i]:
                    weight = self._idf[term] * (counts[place] * (K1 + 1) / (counts[place] + norm[i]))
                    added[i][word] = times * float(weight)
        return [sorted(one.items(), key=lambda item: -item[1]) for one in added]

    def _weights_of(self, term: int) -> Float64s:
        """What each posting of the term adds to its document's score.

        For a frequent term, this is an array over all documents (0 for documents without the term), because adding
        whole arrays is then faster than adding at indices; adding 0 changes no bit.
        """
        known = self._weights.get(term)
        if known is not None:
            return known
        span = slice(*self._postings.starts[term : term + 2])
        documents = self._postings.documents[span]
        counts = self._postings.counts[span]
        weights: Float64s = self._idf[term] * (counts * (K1 + 1) / (counts + self._norm[documents]))
        if len(documents) * 8 > len(self.rows):
            spread = np.zeros(len(self.rows))
            spread[documents] = weights
            weights = spread
        if weights.nbytes <= self._room:
            self._room -= weights.nbytes
            self._weights[term] = weights
        return weights

    def save(self, folder: Path, pool: str = "") -> None:
        """Write the index into ``folder`` as one sealed file, atomically; ``pool`` identifies its pool."""
        arrays: dict[str, NDArray[Any]] = {
            "rows": self.rows,
            "lengths": self._lengths,
            "starts": self._postings.starts,
            "documents": self._postings.documents,
            "counts": self._postings.counts,
            "order": self._postings.order,
            "terms": self._vocabulary.terms,
            "ends": self._vocabulary.ends,
            "numbers": self._vocabulary.numbers,
        }
        save_sealed(folder / FILE, arrays, {"tokeniser": TOKENISER, "pool": pool})


def build(
    rows: Int64s,
    texts: Iterable[str],
    monitor: Monitor = SILENT,
    *,
    engine: Engine = INLINE,
    beside: Path | None = None,
) -> BM25Index:
    """Index ``texts``, the document of ``rows[i]`` being the i-th; the rows (n,) are dense row numbers, each once.

    ``engine`` inverts the documents, with its files in the folder ``beside``. Raises `Cancelled` between parts.
    """
    rows = np.asarray(rows, np.int64)
    found = over_shards(
        invert_shard, _blocks(_in_row_order(rows, texts)), stage=TASK, total=len(rows), beside=beside or Path(),
        engine=engine if beside else INLINE, held=True, monitor=monitor,
    )  # fmt: skip
    inverted = dict(found)
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new term gets the next number
    parts: list[_Part] = []
    lengths = np.concatenate([np.empty(0, np.int32), *(inverted[i]["lengths"] for i in range(len(inverted)))])
    if len(lengths) != len(rows):
        raise ValueError(f"{len(rows)} rows but {len(lengths)} texts")
    first = begin = 0
    for i in range(len(inverted)):
        arrays = inverted.pop(i)
        parts.append(_numbered(arrays, numbers, first, begin))
        first, begin = first + len(arrays["lengths"]), begin + int(arrays["lengths"].sum(dtype=np.int64))
    return BM25Index(np.sort(rows), lengths, _joined(parts, len(numbers)), _Vocabulary.of(numbers))


def _blocks(texts: Iterable[str]) -> Iterator[tuple[int, Arrays]]:
    """Consecutive texts, packed, as many as are inverted at once."""
    block: list[str] = []
    size = 0
    for text in texts:
        block.append(text)
        size += len(text)
        if len(block) == _DOCUMENTS or size >= _CHARACTERS:
            yield len(block), packed(block)
            block, size = [], 0
    if block:
        yield len(block), packed(block)


def load(folder: Path, pool: str = "", *, reread: bool = False) -> BM25Index:
    """Open the index of ``pool`` in ``folder`` as memory maps; ``reread`` reads all of it first, even if it was checked
    before.

    `WorkspaceError` if there is none, if it belongs to another pool, or if it was changed since it was written.
    """
    path = folder / FILE
    try:
        arrays, metadata = map_sealed(path, reread=reread)
        if metadata.get("tokeniser") != TOKENISER:
            raise ValueError("written by another version")
        if metadata.get("pool") != pool:
            raise ValueError("it belongs to another pool")
        return BM25Index(
            arrays["rows"],
            arrays["lengths"],
            _Postings(arrays["starts"], arrays["documents"], arrays["counts"], arrays["order"]),
            _Vocabulary(arrays["terms"], arrays["ends"], arrays["numbers"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkspaceError(f"no usable lexical index at {path}: {error}", "icl-curate index PATH...") from error


def _in_row_order(rows: Int64s, texts: Iterable[str]) -> Iterable[str]:
    steps = np.diff(rows)
    if (steps > 0).all():
        return texts
    order = np.argsort(rows, kind="stable")
    if (np.diff(rows[order]) == 0).any():
        raise ValueError("duplicate row number")
    listed = list(texts)
    return (listed[i] for i in order)


@dataclass(frozen=True, slots=True)
class _Part:
    """The postings of consecutive documents, by term and then document; see `_Postings`."""

    terms: NDArray[np.int32]
    documents: NDArray[np.int32]
    counts: NDArray[np.uint32]
    order: Int64s


def invert_shard(arrays: Arrays, monitor: Monitor) -> Arrays:
    """The postings of packed texts, by term and then document, as in `_Postings`; terms are numbered as they appear,
    ``text`` and ``ends`` are their names. ``lengths``: words of each document."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    tokens: list[int] = []
    lengths = np.zeros(len(arrays["ends"]), np.int32)
    for i, text in enumerate(unpacked(arrays)):
        found = tokenise(text)
        lengths[i] = len(found)
        tokens += map(numbers.__getitem__, found)
    documents = np.repeat(np.arange(len(lengths)), lengths)
    keys = np.array(tokens, np.int64) * max(len(lengths), 1) + documents
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    places = order[begins]
    monitor.report(Event(TASK, len(lengths), len(lengths)))
    return {
        "terms": (keys[begins] // max(len(lengths), 1)).astype(np.int32),
        "documents": documents[places].astype(np.int32),
        "counts": np.diff(np.append(begins, len(keys))).astype(np.uint32),
        "order": places.astype(np.int64),
        "lengths": lengths,
        **packed([*numbers]),
    }


def _numbered(arrays: Arrays, numbers: Mapping[str, int], first: int, begin: int) -> _Part:
    """What `invert_shard` found with the index's own numbers: of terms, of documents from ``first`` on, and of words
    from ``begin`` on."""
    own = np.fromiter(map(numbers.__getitem__, unpacked(arrays)), np.int32, len(arrays["ends"]))
    terms = own[arrays["terms"]]
    order = np.argsort(terms, kind="stable")
    return _Part(
        terms[order],
        arrays["documents"][order] + np.int32(first),
        arrays["counts"][order],
        arrays["order"][order] + begin,
    )


def _joined(parts: list[_Part], terms: int) -> _Postings:
    """The postings of all parts by term and then document; ``parts`` is emptied in the process, which halves the peak
    memory."""
    starts = np.zeros(terms + 1, np.int64)
    for part in parts:
        starts[1:] += np.bincount(part.terms, minlength=terms)
    np.cumsum(starts, out=starts)
    size = int(starts[-1])
    documents, counts, order = np.empty(size, np.int32), np.empty(size, np.uint32), np.empty(size, np.int64)
    free = starts[:-1].copy()  # where the next posting of each term goes
    parts.reverse()
    while parts:
        part = parts.pop()
        held = np.bincount(part.terms, minlength=terms)
        places = np.arange(len(part.terms)) + np.repeat(free - (np.cumsum(held) - held), held)
        documents[places], counts[places], order[places] = part.documents, part.counts, part.order
        free += held
    return _Postings(starts, documents, counts, order)


def _idf(postings: _Postings, documents: int) -> Float64s:
    """Inverse document frequency of every term, (terms,); 0 for a term that no document has."""
    frequencies = np.diff(postings.starts)
    present = np.flatnonzero(frequencies)
    idf = np.zeros(len(frequencies))
    if not len(present):
        return idf
    values, which = np.unique(frequencies[present], return_inverse=True)
    # numpy's vectorised logarithm may differ from libm's in the last bit
    logs = [math.log(documents - value + 0.5) - math.log(value + 0.5) for value in values.tolist()]
    idf[present] = np.array(logs)[which]
    appearance = np.argsort(postings.order[postings.starts[present]], kind="stable")
    average = np.cumsum(idf[present][appearance])[-1] / len(present)  # cumsum adds one by one, sum does not
    idf[idf < 0] = EPSILON * average
    return idf


def _length_norm(lengths: NDArray[np.int32]) -> Float64s:
    """k1 (1 − b + b · length / average length), (n,)."""
    words = int(lengths.sum(dtype=np.int64))
    if not words:
        return np.full(len(lengths), K1 * (1 - B))
    return K1 * (1 - B + B * lengths.astype(np.float64) / (words / len(lengths)))
