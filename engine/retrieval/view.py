"""The pool as selection methods see it: read once, searched many times.

Rows, groups and indexes are loaded on first use and kept; a serving process loads them once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..base import memory
from ..base.arrays import Bools, Float32s, Float64s, Int64s
from ..base.errors import UsageError, WorkspaceError, counted
from ..base.progress import SILENT, Monitor
from ..pool.records import Demonstration, Query, Task
from ..pool.sets import labels_of
from ..shards.over import SHARDS
from ..shards.shard import Engine
from ..store.browse import pruned_rows
from ..store.demonstrations import (
    Texts,
    active_rows,
    as_read,
    content_keys,
    groups,
    judged_system,
    searched_texts,
    task_of,
)
from ..store.locks import wait_until_free
from ..store.settings import Settings
from ..store.workspace import Workspace
from .artefacts import encoding_lock, lexical_index, need_of, opened, search_codes, vectors_of
from .bm25 import BM25Index
from .dense import DenseIndex
from .duplicates import Repeats
from .encoder import Encoder, bound_for
from .served import Access
from .vectors import TokenVectors, Vectors, encoded, with_passages

RankedRows = tuple[Int64s, Float64s]
"""Rows best first, and their scores."""
Tokens = list[NDArray[np.float16]]
NO_ROWS: Int64s = np.zeros(0, np.int64)
NO_OUTPUTS: Mapping[int, str] = {}
EXAMPLES = "examples"
"""The folder, in that of an encoder's vectors, of the vectors of whole examples."""


class PoolIndexes:
    """What is read or loaded once for the active pool of a workspace, or for ``chosen`` rows, whatever a view leaves
    out of it."""

    def __init__(
        self, workspace: Workspace, settings: Settings, monitor: Monitor, chosen: Int64s | None = None
    ) -> None:
        self.workspace, self.settings = workspace, settings
        self.monitor = monitor
        self._chosen = chosen
        self._examined = NO_ROWS
        """Rows whose vectors as examples were seen to be those of their texts."""

    @cached_property
    def rows(self) -> Int64s:
        """The active rows, or those chosen, (n,), ascending."""
        rows = active_rows(self.workspace) if self._chosen is None else self._chosen
        if not rows.size:
            back = "icl-curate undo; or icl-curate restore --source NAME"
            fix = back if pruned_rows(self.workspace).size else "icl-curate index POOL.jsonl"
            raise UsageError("the active pool is empty", fix)
        return rows

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """Content keys of all rows of the workspace, by row number; see `content_keys`."""
        self.rows  # noqa: B018  # read first: a row that comes in between has a key then
        return content_keys(self.workspace)

    @cached_property
    def texts(self) -> Texts:
        return Texts(self.workspace, int(self.rows.size))

    @cached_property
    def lexical(self) -> BM25Index:
        """BM25 over all indexed rows, pruned ones included."""
        passages = self.settings.passages
        return lexical_index(self.workspace, self.monitor, content=self.keys, passages=passages)

    @cached_property
    def encoder(self) -> Encoder:
        settings = self.settings
        return opened(
            self.workspace.path, settings.encoder, settings.device, Access.of(settings),
            full_precision=settings.full_precision,
        )  # fmt: skip

    @cached_property
    def stored(self) -> Vectors:
        """Vectors of the indexed rows; waits for those that a running ``index`` is about to encode. Raises `UsageError`
        if the active pool has none of the configured encoder, and `WorkspaceError` if the stored ones belong to other
        content."""
        try:
            return self._stored()
        except (UsageError, WorkspaceError):
            wait_until_free(encoding_lock(self.workspace))
            return self._stored()

    def _stored(self) -> Vectors:
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
    def encoded(self) -> Bools:
        """Which rows of the workspace have a vector, (rows,)."""
        return self.stored.holds(np.arange(len(self.keys)), self.keys)

    @cached_property
    def tokens(self) -> TokenVectors:
        return TokenVectors(self.stored.folder, self.stored.encoder)

    @cached_property
    def examples(self) -> Vectors:
        """Vectors of rows as examples, input and output as one text."""
        return Vectors.create(self.stored.folder / EXAMPLES, self.stored.encoder, self.stored.dimension)

    def example_vectors(self, rows: Int64s) -> Float32s:
        """Embeddings of rows as examples, (n, d): encoded on first use, then stored."""
        wanted = np.setdiff1d(rows, self._examined)
        if wanted.size:  # a training asks for the same ones again and again
            shots = self.texts.of(wanted.tolist())
            texts = {row: example_text(shots[row], self.settings.passages) for row in wanted.tolist()}
            keys = np.array([text_key(text) for text in texts.values()], np.uint64)
            if self.examples.missing(wanted, keys).size:
                self.examples.fill(
                    self.encoder, wanted, lambda rows: [texts[row] for row in rows.tolist()], keys, self.monitor,
                )  # fmt: skip
            self._examined = np.union1d(self._examined, wanted)
        return np.asarray(self.examples.matrix[rows])

    @cached_property
    def groups(self) -> Int64s:
        """As `groups` of the store: of each row, the first row of its duplicate group, (rows,)."""
        return groups(self.workspace)

    @cached_property
    def grouped(self) -> tuple[Int64s, Int64s]:
        """The rows by group, (rows,), and the group of each."""
        order = np.argsort(self.groups, kind="stable").astype(np.int64)
        return order, self.groups[order]

    @cached_property
    def repeats(self) -> Repeats:
        return Repeats.open(self.workspace, self.settings.near_duplicate, self.monitor, self.keys)


class PoolView:
    """The active pool of a workspace at one point in time; later decisions need a new view.

    The rows ``left_out`` count as pruned, and those of ``outputs`` have these. ``indexes`` are shared by all views of
    one pool.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: Settings,
        monitor: Monitor = SILENT,
        *,
        indexes: PoolIndexes | None = None,
        left_out: Int64s = NO_ROWS,
        outputs: Mapping[int, str] = NO_OUTPUTS,
    ) -> None:
        self.workspace, self.settings = workspace, settings
        self.monitor = monitor
        self.indexes = indexes or PoolIndexes(workspace, settings, monitor)
        self._left_out, self._outputs = left_out, outputs
        self._revised_examples: dict[int, Float32s] = {}

    @classmethod
    def as_indexed(cls, workspace: Workspace, settings: Settings, monitor: Monitor = SILENT) -> PoolView:
        """A view of the pool as if nothing had been decided."""
        rows, outputs = as_read(workspace)
        indexes = PoolIndexes(workspace, settings, monitor, rows)
        return cls(workspace, settings, monitor, indexes=indexes, outputs=outputs)

    def renewed(self) -> PoolView:
        """A view of the current pool; a loaded encoder stays loaded."""
        view = PoolView(self.workspace, self.settings, self.monitor)
        if "encoder" in vars(self.indexes):
            view.indexes.encoder = self.encoder
        return view

    def without(self, rows: Int64s, outputs: Mapping[int, str] = NO_OUTPUTS) -> PoolView:
        """A view of the pool as if the ``rows`` were pruned, too, and those of ``outputs`` had these."""
        return PoolView(
            self.workspace, self.settings, self.monitor, indexes=self.indexes,
            left_out=np.union1d(self._left_out, rows), outputs={**self._outputs, **outputs},
        )  # fmt: skip

    @property
    def preselect(self) -> int:
        return self.settings.preselect

    @property
    def keys(self) -> NDArray[np.uint64]:
        return self.indexes.keys

    @property
    def encoder(self) -> Encoder:
        return self.indexes.encoder

    @property
    def stored(self) -> Vectors:
        return self.indexes.stored

    @cached_property
    def rows(self) -> Int64s:
        """The rows of the view (n,), ascending."""
        rows = np.setdiff1d(self.indexes.rows, self._left_out)
        if not rows.size:
            raise UsageError("no demonstration would be left", "prune fewer")
        return rows

    @cached_property
    def task(self) -> Task:
        """The kind of answers in the pool."""
        task = task_of(self.workspace, np.union1d(self._left_out, np.fromiter(self._outputs, np.int64)))
        if task.kind == "sets" and not task.labels:  # too many to list
            return task
        more = labels_of(task.kind, self._outputs.values())
        return replace(task, labels=tuple(sorted({*task.labels, *more})))

    @cached_property
    def judged_system(self) -> str:
        """See `store.demonstrations.judged_system`."""
        return judged_system(self.workspace)

    def demonstrations(self, rows: Sequence[Sequence[int]]) -> list[list[Demonstration]]:
        """The demonstrations of lists of rows."""
        wanted = {row for chosen in rows for row in chosen}
        if not wanted:
            return [[] for _ in rows]
        shots = self.indexes.texts.of(wanted)
        revised = {row: replace(shots[row], output=self._outputs[row]) for row in wanted & self._outputs.keys()}
        return [[revised.get(row, shots[row]) for row in chosen] for chosen in rows]

    @cached_property
    def lexical(self) -> BM25Index:
        """BM25 whose statistics are those of the view's rows alone."""
        active = np.zeros(int(self.rows[-1]) + 1, np.bool_)
        active[self.rows] = True
        return self.indexes.lexical.restricted(active)

    @cached_property
    def engine(self) -> Engine:
        """What computes over many texts or the whole pool."""
        return Engine.of(self.settings)

    def encoded(self, texts: Sequence[str]) -> Float32s:
        """Embeddings of many texts that are no rows, (n, d)."""
        elsewhere = "" if self.engine.here else self.settings.device
        return encoded(
            bound_for(self.encoder, elsewhere), texts, self.workspace.path / SHARDS, self.monitor,
            engine=self.engine, need=need_of(elsewhere),
        )  # fmt: skip

    @cached_property
    def nearest(self) -> DenseIndex:
        codes = search_codes(self.stored, self.rows.size, self.monitor)
        index = DenseIndex(self.stored.matrix, self.rows, codes)
        fix = "each search reads them from the disk; -m bm25 reads less, or search on a machine with more memory"
        memory.warn(self.monitor, "the vectors take", index.nbytes, fix)
        return index

    def vectors(self, rows: Int64s) -> Float32s:
        """Embeddings of rows, (n, d)."""
        return np.asarray(self.stored.matrix[rows])

    def example_vectors(self, rows: Int64s) -> Float32s:
        """Embeddings of rows as examples, input and output as one text, (n, d). Those with other outputs than the
        pool's are not stored."""
        revised = np.isin(rows, np.fromiter(self._outputs, np.int64))
        vectors = np.empty((len(rows), self.stored.dimension), np.float32)
        vectors[~revised] = self.indexes.example_vectors(rows[~revised])
        if missing := sorted({*rows[revised].tolist()} - self._revised_examples.keys()):
            (shots,) = self.demonstrations([missing])
            texts = [example_text(shot, self.settings.passages) for shot in shots]
            self._revised_examples |= zip(missing, self.encoder.encode(texts), strict=True)
        for place in np.flatnonzero(revised).tolist():
            vectors[place] = self._revised_examples[int(rows[place])]
        return vectors

    def embed(self, queries: Sequence[Query]) -> Float32s:
        """Embeddings of queries, (q, d): stored ones if the query is an indexed row, else encoded now."""
        encoded, matrix = self.indexes.encoded, self.stored.matrix
        vectors = np.empty((len(queries), self.stored.dimension), np.float32)
        fresh = []
        for i, query in enumerate(queries):
            if query.row is not None and query.row < encoded.size and encoded[query.row]:
                vectors[i] = matrix[query.row]
            else:
                fresh.append(i)
        if fresh:
            texts = [self.searched(queries[i]) for i in fresh]
            vectors[fresh] = self.encoder.encode_queries(texts, self.monitor)
        return vectors

    def bm25_top(self, queries: Sequence[Query], k: int) -> list[RankedRows]:
        index = self.lexical
        excluded = self.excluded_each(queries)
        return index.top_many([*map(self.searched, queries)], k, excluded, self.monitor)

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
        return index.top_many(self.embed(queries), k, excluded, self.monitor)

    def excluded_each(self, queries: Sequence[Query]) -> list[Int64s]:
        """`excluded` of each."""
        outside = [query for query in queries if query.row is None]
        repeats = iter(self.indexes.repeats.of_queries(outside) if outside else ())
        return [next(repeats) if query.row is None else self.excluded(query) for query in queries]

    def excluded(self, query: Query) -> Int64s:
        """Rows that must not be selected for the query: itself and its duplicates."""
        if query.row is None:
            return self.indexes.repeats.of_queries([query])[0]
        ordered, sorted_groups = self.indexes.grouped
        group = self.indexes.groups[query.row]
        return ordered[np.searchsorted(sorted_groups, group) : np.searchsorted(sorted_groups, group, "right")]

    def tokens_of(self, wanted: Sequence[Int64s]) -> Callable[[Int64s], Tokens]:
        """Ensure that the rows' token vectors are stored, and return a function that reads them."""
        tokens, keys = self.indexes.tokens, self.keys
        rows = np.unique(np.concatenate([np.empty(0, np.int64), *wanted]))
        missing = tokens.missing(rows.tolist(), keys[rows].tolist())
        if missing:
            texts = searched_texts(self.workspace, missing, self.settings.passages)
            tokens.fill(self.encoder, missing, texts, keys[missing].tolist(), self.monitor)
        return lambda rows: tokens.read(rows.tolist(), keys[rows].tolist())

    def query_tokens(self, queries: Sequence[Query]) -> Tokens:
        """Token vectors of queries, stored for indexed ones."""
        tokens: dict[int, NDArray[np.float16]] = {}
        indexed = [(i, query.row) for i, query in enumerate(queries) if query.row is not None]
        if indexed:
            rows = np.array([row for _, row in indexed], np.int64)
            tokens = dict(zip((i for i, _ in indexed), self.tokens_of([rows])(rows), strict=True))
        fresh = [i for i in range(len(queries)) if i not in tokens]
        if fresh:
            texts = [self.searched(queries[i]) for i in fresh]
            tokens |= dict(zip(fresh, self.encoder.encode_tokens(texts, self.monitor), strict=True))
        return [tokens[i] for i in range(len(queries))]


def example_text(shot: Demonstration, passages: bool) -> str:
    """The text that a whole example is encoded by."""
    return f"{shot.as_query().searched(passages)}\n{shot.output}"


def text_key(text: str) -> int:
    """64 bits of a text's hash: the output of a row can change, its number does not."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
