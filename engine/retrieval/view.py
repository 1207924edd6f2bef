"""The pool as selection methods see it: read once, searched many times.

Rows, groups and indexes are loaded on first use and kept; a serving process loads them once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..base import memory
from ..base.arrays import Bools, Float32s, Float64s, Int64s
from ..base.errors import UsageError, WorkspaceError, counted
from ..base.progress import CancelToken, Report, silent
from ..pool.records import Demonstration, Query, Task
from ..shards.over import SHARDS
from ..shards.shard import Engine
from ..store.demonstrations import Texts, active_rows, content_keys, groups, searched_texts, task_of
from ..store.settings import Settings
from ..store.workspace import Workspace
from .artefacts import lexical_index, need_of, opened, search_codes, vectors_of
from .bm25 import BM25Index
from .dense import DenseIndex
from .duplicates import Repeats
from .encoder import Encoder, bound_for
from .served import Access
from .vectors import TokenVectors, Vectors, encoded, with_passages

RankedRows = tuple[Int64s, Float64s]
"""Rows best first, and their scores."""
Tokens = list[NDArray[np.float16]]
NOTHING: Mapping[int, str] = {}
EXAMPLES = "examples"
"""The folder, in that of an encoder's vectors, of the vectors of whole examples."""


class PoolView:
    """The active pool of a workspace at one point in time; later decisions need a new view."""

    _examined: Int64s = np.zeros(0, np.int64)
    """Rows whose vectors as examples were seen to be those of their texts."""

    def __init__(
        self, workspace: Workspace, settings: Settings, report: Report = silent, cancel: CancelToken | None = None
    ) -> None:
        self.workspace, self.settings = workspace, settings
        self.report, self.cancel = report, cancel

    def renewed(self) -> PoolView:
        """A view of the current pool; a loaded encoder stays loaded."""
        view = PoolView(self.workspace, self.settings, self.report, self.cancel)
        if "encoder" in self.__dict__:
            view.encoder = self.encoder
        return view

    def without(self, rows: Int64s, outputs: Mapping[int, str] = NOTHING) -> PoolView:
        """A view of the pool as if the ``rows`` were pruned, too, and those of ``outputs`` had these; it shares
        everything that is loaded."""
        return _Revised(self, rows, outputs)

    @property
    def preselect(self) -> int:
        return self.settings.preselect

    @cached_property
    def rows(self) -> Int64s:
        """Active rows (n,), ascending."""
        rows = active_rows(self.workspace)
        if not rows.size:
            raise UsageError("the active pool is empty", "icl-curate index POOL.jsonl, or icl-curate restore")
        return rows

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """Content keys of all rows of the workspace, by row number; see `content_keys`."""
        self.rows  # noqa: B018  # read first: a row that comes in between has a key then
        return content_keys(self.workspace)

    @cached_property
    def task(self) -> Task:
        """The kind of answers in the pool."""
        return task_of(self.workspace)

    def demonstrations(self, rows: Sequence[Sequence[int]]) -> list[list[Demonstration]]:
        """The demonstrations of lists of rows."""
        wanted = {row for chosen in rows for row in chosen}
        if not wanted:
            return [[] for _ in rows]
        found = self._texts.of(wanted)
        return [[found[row] for row in chosen] for chosen in rows]

    @cached_property
    def _texts(self) -> Texts | _RevisedTexts:
        return Texts(self.workspace, int(self.rows.size))

    @cached_property
    def lexical(self) -> BM25Index:
        """BM25 whose statistics are those of the active rows alone."""
        active = np.zeros(int(self.rows[-1]) + 1, np.bool_)
        active[self.rows] = True
        return self._lexical_of_all.restricted(active)

    @cached_property
    def _lexical_of_all(self) -> BM25Index:
        """BM25 over all indexed rows, pruned ones included."""
        passages = self.settings.passages
        return lexical_index(self.workspace, self.report, self.cancel, content=self.keys, passages=passages)

    @cached_property
    def encoder(self) -> Encoder:
        settings = self.settings
        return opened(
            self.workspace.path, settings.encoder, settings.device, Access.of(settings),
            full_precision=settings.full_precision,
        )  # fmt: skip

    @cached_property
    def engine(self) -> Engine:
        """What computes over many texts or the whole pool."""
        return Engine.of(self.settings)

    def encoded(self, texts: Sequence[str]) -> Float32s:
        """Embeddings of many texts that are no rows, (n, d)."""
        elsewhere = "" if self.engine.here else self.settings.device
        return encoded(
            bound_for(self.encoder, elsewhere), texts, self.workspace.path / SHARDS, self.report, self.cancel,
            engine=self.engine, need=need_of(elsewhere),
        )  # fmt: skip

    @cached_property
    def stored(self) -> Vectors:
        """Vectors of the indexed rows. Raises `UsageError` if the active pool has none of the configured encoder, and
        `WorkspaceError` if the stored ones belong to other content."""
        encoder = self.settings.encoder
        named = with_passages(encoder) if self.settings.passages else encoder
        fix = f"icl-curate index --encoder {encoder}"
        try:
            stored = vectors_of(self.workspace, encoder, self.settings.passages)
        except WorkspaceError as error:
            raise UsageError(
                f"{counted(self.rows.size, 'demonstration', 'has', 'have')} no vectors of {named}", fix
            ) from error
        missing = int(stored.missing(self.rows, self.keys[self.rows]).size)
        unfit = stored.unfit(self.rows, self.keys[self.rows]) if missing else 0
        if unfit:
            raise WorkspaceError(f"{unfit:,} stored vectors of {named} are damaged or outdated", fix)
        if missing:
            raise UsageError(f"{counted(missing, 'demonstration', 'has', 'have')} no vectors of {named}", fix)
        return stored

    @cached_property
    def nearest(self) -> DenseIndex:
        codes = search_codes(self.stored, self.rows.size, self.report, self.cancel)
        index = DenseIndex(self.stored.matrix, self.rows, codes)
        fix = "each search reads them from the disk; -m bm25 reads less, or search on a machine with more memory"
        memory.warn(self.report, "the vectors take", index.nbytes, fix)
        return index

    def vectors(self, rows: Int64s) -> Float32s:
        """Embeddings of rows, (n, d)."""
        return np.asarray(self.stored.matrix[rows])

    def example_vectors(self, rows: Int64s) -> Float32s:
        """Embeddings of rows as examples, input and output as one text, (n, d): encoded on first use, then stored."""
        kept, wanted = self._examples, np.setdiff1d(rows, self._examined)
        if wanted.size:  # a training asks for the same ones again and again
            (shots,) = self.demonstrations([wanted.tolist()])
            texts = self._examples_of(shots)
            keys = np.array([text_key(text) for text in texts], np.uint64)
            if kept.missing(wanted, keys).size:
                kept.fill(self.encoder, wanted, texts, keys, self.report, self.cancel)
            self._examined = np.union1d(self._examined, wanted)
        return np.asarray(kept.matrix[rows])

    def _examples_of(self, shots: Sequence[Demonstration]) -> list[str]:
        """The texts that whole examples are encoded by."""
        return [f"{self.searched(shot.as_query())}\n{shot.output}" for shot in shots]

    @cached_property
    def _examples(self) -> Vectors:
        stored = self.stored
        return Vectors.create(stored.folder / EXAMPLES, stored.encoder, stored.dimension)

    def embed(self, queries: Sequence[Query]) -> Float32s:
        """Embeddings of queries, (q, d): stored ones if the query is an indexed row, else encoded now."""
        stored = self.stored
        known, matrix = self._known, stored.matrix
        vectors = np.empty((len(queries), stored.dimension), np.float32)
        fresh = []
        for i, query in enumerate(queries):
            if query.row is not None and query.row < known.size and known[query.row]:
                vectors[i] = matrix[query.row]
            else:
                fresh.append(i)
        if fresh:
            texts = [self.searched(queries[i]) for i in fresh]
            vectors[fresh] = self.encoder.encode(texts, self.report, self.cancel)
        return vectors

    @cached_property
    def _known(self) -> Bools:
        """Which rows of the workspace have a vector, (rows,)."""
        return self.stored.holds(np.arange(len(self.keys)), self.keys)

    def bm25_top(self, queries: Sequence[Query], k: int) -> list[RankedRows]:
        index = self.lexical
        excluded = self.excluded_each(queries)
        return index.top_many([*map(self.searched, queries)], k, excluded, self.report, self.cancel)

    def searched(self, query: Query) -> str:
        """The text that a query is retrieved by."""
        return query.searched(self.settings.passages)

    def top(self, ranking: str, queries: Sequence[Query], k: int) -> list[RankedRows]:
        """The ``k`` best by ``ranking``, dense or bm25; `UsageError` for any other."""
        search = {"dense": self.dense_top, "bm25": self.bm25_top}.get(ranking)
        if search is None:
            raise UsageError(f"cannot rank by '{ranking}'", "--ranking dense or --ranking bm25")
        return search(queries, k)

    def dense_top(self, queries: Sequence[Query], k: int) -> list[RankedRows]:
        index = self.nearest
        excluded = self.excluded_each(queries)
        return index.top_many(self.embed(queries), k, excluded, self.report, self.cancel)

    def excluded_each(self, queries: Sequence[Query]) -> list[Int64s]:
        """`excluded` of each."""
        outside = [query.input for query in queries if query.row is None]
        found = iter(self._repeats.of_texts(outside) if outside else ())
        return [next(found) if query.row is None else self.excluded(query) for query in queries]

    def excluded(self, query: Query) -> Int64s:
        """Rows that must not be selected for the query: itself and its duplicates."""
        if query.row is None:
            return self._repeats.of_text(query.input)
        ordered, sorted_groups = self._grouped
        group = self._groups[query.row]
        return ordered[np.searchsorted(sorted_groups, group) : np.searchsorted(sorted_groups, group, "right")]

    def tokens_of(self, wanted: Sequence[Int64s]) -> Callable[[Int64s], Tokens]:
        """Ensure that the rows' token vectors are stored, and return a function that reads them."""
        kept, keys = self._tokens, self.keys
        rows = np.unique(np.concatenate([np.empty(0, np.int64), *wanted]))
        missing = kept.missing(rows.tolist(), keys[rows].tolist())
        if missing:
            texts = searched_texts(self.workspace, missing, self.settings.passages)
            kept.fill(self.encoder, missing, texts, keys[missing].tolist(), self.report, self.cancel)
        return lambda rows: kept.read(rows.tolist(), keys[rows].tolist())

    def query_tokens(self, queries: Sequence[Query]) -> Tokens:
        """Token vectors of queries, stored for indexed ones."""
        found: dict[int, NDArray[np.float16]] = {}
        indexed = [(i, query.row) for i, query in enumerate(queries) if query.row is not None]
        if indexed:
            rows = np.array([row for _, row in indexed], np.int64)
            found = dict(zip((i for i, _ in indexed), self.tokens_of([rows])(rows), strict=True))
        fresh = [i for i in range(len(queries)) if i not in found]
        if fresh:
            texts = [self.searched(queries[i]) for i in fresh]
            found |= dict(zip(fresh, self.encoder.encode_tokens(texts, self.report, self.cancel), strict=True))
        return [found[i] for i in range(len(queries))]

    @cached_property
    def _tokens(self) -> TokenVectors:
        return TokenVectors(self.stored.folder, self.stored.encoder)

    @cached_property
    def _groups(self) -> Int64s:
        return groups(self.workspace)

    @cached_property
    def _grouped(self) -> tuple[Int64s, Int64s]:
        order = np.argsort(self._groups, kind="stable").astype(np.int64)
        return order, self._groups[order]

    @cached_property
    def _repeats(self) -> Repeats:
        return Repeats.open(self.workspace, self.settings.near_duplicate, self.report, self.cancel, self.keys)


class _Revised(PoolView):
    """A view less some rows, and with other outputs of some. What depends on neither is that of the ``whole``."""

    def __init__(self, whole: PoolView, rows: Int64s, outputs: Mapping[int, str]) -> None:
        super().__init__(whole.workspace, whole.settings, whole.report, whole.cancel)
        self._whole, self._left_out, self._outputs = whole, rows, outputs
        self._own_examples: dict[int, Float32s] = {}

    def without(self, rows: Int64s, outputs: Mapping[int, str] = NOTHING) -> PoolView:
        return _Revised(self._whole, np.union1d(self._left_out, rows), {**self._outputs, **outputs})

    @cached_property
    def rows(self) -> Int64s:
        rows = np.setdiff1d(self._whole.rows, self._left_out)
        if not rows.size:
            raise UsageError("no demonstration would be left", "prune fewer")
        return rows

    @cached_property
    def task(self) -> Task:
        task = task_of(self.workspace, np.union1d(self._left_out, np.fromiter(self._outputs, np.int64)))
        if task.kind != "labels":
            return task
        return replace(task, labels=tuple(sorted({*task.labels, *self._outputs.values()})))

    def example_vectors(self, rows: Int64s) -> Float32s:
        """As in `PoolView`; those of revised rows are not stored, as what is stored belongs to the pool as it is."""
        if not self._outputs:
            return super().example_vectors(rows)
        own = np.isin(rows, np.fromiter(self._outputs, np.int64))
        found = np.empty((len(rows), self.stored.dimension), np.float32)
        found[~own] = super().example_vectors(rows[~own])
        if missing := sorted({*rows[own].tolist()} - self._own_examples.keys()):
            (shots,) = self.demonstrations([missing])
            self._own_examples |= zip(missing, self.encoder.encode(self._examples_of(shots)), strict=True)
        for place in np.flatnonzero(own).tolist():
            found[place] = self._own_examples[int(rows[place])]
        return found

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        return self._whole.keys

    @cached_property
    def encoder(self) -> Encoder:
        return self._whole.encoder

    @cached_property
    def stored(self) -> Vectors:
        return self._whole.stored

    @cached_property
    def _lexical_of_all(self) -> BM25Index:
        return self._whole._lexical_of_all

    @cached_property
    def _texts(self) -> Texts | _RevisedTexts:
        return _RevisedTexts(self._whole._texts, self._outputs) if self._outputs else self._whole._texts

    @cached_property
    def _known(self) -> Bools:
        return self._whole._known

    @cached_property
    def _tokens(self) -> TokenVectors:
        return self._whole._tokens

    @cached_property
    def _examples(self) -> Vectors:
        return self._whole._examples

    @cached_property
    def _groups(self) -> Int64s:
        return self._whole._groups

    @cached_property
    def _grouped(self) -> tuple[Int64s, Int64s]:
        return self._whole._grouped

    @cached_property
    def _repeats(self) -> Repeats:
        return self._whole._repeats


class _RevisedTexts:
    """Demonstrations of a view with other ``outputs`` of some rows."""

    def __init__(self, texts: Texts | _RevisedTexts, outputs: Mapping[int, str]) -> None:
        self._texts, self._outputs = texts, outputs

    def of(self, rows: Collection[int]) -> dict[int, Demonstration]:
        """As in `Texts`."""
        found = self._texts.of(rows)
        return {
            row: replace(found[row], output=self._outputs[row]) if row in self._outputs else found[row]
            for row in rows
            if row in found
        }


def text_key(text: str) -> int:
    """64 bits of a text's hash: the output of a row can change, its number does not."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
