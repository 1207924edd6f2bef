"""Exact and near duplicates of inputs: MinHash (Broder 1997) with banding, confirmed by the exact Jaccard similarity.

Each input has a signature of 128 permutations over its character 5-grams, cut into 16 bands of 8; inputs that agree in
a band are candidates. Pairs whose signatures agree far too rarely are dropped (b-bit minwise hashing, Li and König
2010: the low 8 bits of each value are stored), the others are compared exactly. For a threshold below .8 the stored
bits are cut into narrower bands, for pairs at the threshold to be found as surely. Hashes are stored in a file beside
the workspace, at the rows' own numbers and with their content keys, so that only new rows are hashed.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Bools, Float64s, Int64s
from ..base.progress import SILENT, Event, Monitor
from ..pool.records import Query, history_text
from ..shards.over import SHARDS, over_shards
from ..shards.shard import INLINE, Arrays, Engine, Resources, packed, unpacked
from ..store import columns
from ..store.demonstrations import COMPARED, content_keys, input_blocks, inputs
from ..store.workspace import Workspace, in_memory
from .checked import map_sealed, save_sealed

TASK = "duplicates"
GRAM = 5
BANDS, BAND = 16, 8
WIDE, FOUND = 0.8, 0.95
"""The threshold from which bands have 8 values, and how surely a pair at a lower one shares a band."""
FILE, OLD_FILE = "minhash.safetensors", "minhash.npy"
CHUNK = 1_000
"""Texts hashed at once: their 5-grams fit into the processor's cache."""
CHARACTERS = 1 << 20
"""Maximum characters hashed or compared at once, except for longer single texts: each takes some 150 bytes."""
SHORT = 2_000
"""Grams of a text up to which all hash functions are computed at once: one operation of numpy instead of 128."""
GOES_ON = 64
"""Texts looked up by comparing whole columns; a process that looks up more sorts the columns first."""
MOST_PAIRS = 1 << 16
"""Maximum pairs compared at once."""
MOST_READ, MOST_KEPT = 1_000, 1 << 25
"""Maximum candidates of a text whose inputs are remembered, and about how many characters of them."""

DOUBT = 4.0
"""Standard errors by which the similarity estimated from signatures may be below the threshold: a pair exactly at the
threshold is dropped once in 10,000."""

NO_ASIDE = 0
_ASIDE = f"""
    CASE WHEN context = '' AND len(options) = 0 AND coalesce(history, '[]') = '[]' THEN {NO_ASIDE}
         ELSE md5_number_lower(lower(context) || chr(31) || array_to_string(list_sort(options), chr(31))
                               || CASE coalesce(history, '[]') WHEN '[]' THEN '' ELSE chr(31) || lower(history) END) END
"""

_U64 = NDArray[np.uint64]
_SPACE = re.compile(r"\s+")
_RADIX = np.uint64(0x100000001B3)
_draw = np.random.Generator(np.random.PCG64(20_21))  # fixed: keys in a file must mean the same in every release
_FACTORS = _draw.integers(0, 1 << 31, BANDS * BAND, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
_MASKS = _draw.integers(0, 1 << 32, BANDS * BAND, dtype=np.uint32)


def normalised(text: str) -> str:
    """The form in which texts are compared: NFKC, case folded, white space folded."""
    return _SPACE.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


def jaccards(texts: Sequence[str], pairs: Int64s) -> Float64s:
    """Jaccard similarity of the sets of character 5-grams for pairs (p, 2) of positions in ``texts``, (p,).

    A text shorter than a 5-gram is one gram.
    """
    grams = {
        text: frozenset(text[i : i + GRAM] for i in range(len(text) - GRAM + 1)) or frozenset({text})
        for text in dict.fromkeys(texts)
    }
    similarities = np.empty(len(pairs))
    for i, (a, b) in enumerate(pairs.tolist()):
        left, right = grams[texts[a]], grams[texts[b]]
        common = len(left & right)
        similarities[i] = common / (len(left) + len(right) - common)
    return similarities


class MinHashes(NamedTuple):
    """Hashes of n texts: ``keys`` of their bands (n, 16); two texts that agree in any of them are candidates. ``low``:
    the low 8 bits of their signatures (n, 128), which agree in proportion to the similarity, plus by chance once in
    256."""

    keys: _U64
    low: NDArray[np.uint8]


def min_hashes(texts: Sequence[str], monitor: Monitor = SILENT) -> MinHashes:
    """The hashes of normalised texts. Raises `Cancelled` between chunks."""
    if 0 < len(texts) <= GOES_ON and sum(map(len, texts)) <= CHARACTERS:
        few = _chunk_hashes(texts)  # queries, or a small pool: threads would cost more than the work
        monitor.report(Event(TASK, len(texts), len(texts)))
        return few
    parts: list[MinHashes] = []
    done = 0
    with ThreadPoolExecutor(2) as pool:  # numpy releases the GIL inside its loops
        for found in pool.map(_chunk_hashes, _chunks(texts)):
            monitor.check()
            parts.append(found)
            done += len(found.keys)
            monitor.report(Event(TASK, done, len(texts)))
    if not parts:
        return MinHashes(np.empty((0, BANDS), np.uint64), np.empty((0, BANDS * BAND), np.uint8))
    return MinHashes(np.concatenate([part.keys for part in parts]), np.concatenate([part.low for part in parts]))


def _chunks(texts: Sequence[str]) -> list[Sequence[str]]:
    """The texts in parts of at most `CHUNK` texts and `CHARACTERS` characters; a longer text forms its own part."""
    parts: list[Sequence[str]] = []
    start = size = 0
    for i, text in enumerate(texts):
        if i > start and (i - start == CHUNK or size + len(text) > CHARACTERS):
            parts.append(texts[start:i])
            start, size = i, 0
        size += len(text)
    return [*parts, texts[start:]] if texts else parts


def _chunk_hashes(texts: Sequence[str]) -> MinHashes:
    hashes, starts = _gram_hashes(texts)
    high = (hashes >> np.uint64(32)).astype(np.uint32)  # 32 bits: half the memory traffic, 128 times
    if len(texts) == 1 and high.size <= SHORT:
        signature = ((high ^ _MASKS[:, None]) * _FACTORS[:, None]).min(axis=1, keepdims=True)  # as `_least` does
    else:
        signature = _least(high, starts)
    keys = np.zeros((BANDS, len(texts)), np.uint64)
    for row in range(BAND):
        keys = _mixed(keys * _RADIX + signature.reshape(BANDS, BAND, -1)[:, row])
    return MinHashes(keys.T, np.ascontiguousarray(signature.astype(np.uint8).T))


def _least(high: NDArray[np.uint32], starts: Int64s) -> NDArray[np.uint32]:
    """The least value of every hash function over each text's grams, (128, texts)."""
    signature = np.empty((BANDS * BAND, len(starts)), np.uint32)
    scratch = np.empty_like(high)
    for i, (factor, mask) in enumerate(zip(_FACTORS, _MASKS, strict=True)):
        np.bitwise_xor(high, mask, out=scratch)
        np.multiply(scratch, factor, out=scratch)  # by an odd number: a permutation of the 32-bit numbers
        np.minimum.reduceat(scratch, starts, out=signature[i])
    return signature


def _gram_hashes(texts: Sequence[str]) -> tuple[_U64, Int64s]:
    """Hashes of all grams, text after text, and the start of each text. Every text has at least one gram."""
    padded = [text if len(text) >= GRAM else text.ljust(GRAM, "\0") for text in texts]
    points = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    hashes = np.zeros(len(points) - GRAM + 1 if len(points) else 0, np.uint64)
    for i in range(GRAM):
        hashes = hashes * _RADIX + points[i : len(points) - GRAM + 1 + i]
    lengths = np.array([len(text) for text in padded], np.int64)
    ends = np.cumsum(lengths)
    inside = np.ones(len(hashes), np.bool_)
    for i in range(1, GRAM):  # positions whose gram would reach into the next text
        crossing = ends - i
        inside[crossing[crossing < len(hashes)]] = False
    counts = lengths - GRAM + 1
    return _mixed(hashes[inside]), np.cumsum(counts) - counts


def _mixed(x: _U64) -> _U64:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)), np.uint64)


@dataclass(frozen=True, slots=True)
class Repeat:
    """A row that duplicates an earlier one; see the table ``duplicates``."""

    row: int
    of: int
    kind: str
    similarity: float
    same: int


@dataclass(frozen=True, slots=True)
class Rows:
    """The data for finding duplicates among n rows.

    ``numbers`` (n,) are ascending; ``lengths`` (n,) are those of the inputs in characters; ``outputs`` and ``asides``
    (n,) are any values that are equal for equal content: an aside represents passage and options, and is ``NO_ASIDE``
    if a row has neither. ``texts`` returns the inputs of positions among the rows.
    """

    numbers: Int64s
    lengths: Int64s
    outputs: NDArray[Any]
    asides: NDArray[Any]
    hashes: MinHashes
    texts: Callable[[Int64s], Sequence[str]]


def find_repeats(rows: Rows, threshold: float, monitor: Monitor = SILENT) -> list[Repeat]:
    """Duplicate groups among rows.

    Two inputs with Jaccard similarity ``threshold`` or more are in one group, and so are all inputs connected through
    others. One question about two passages, or with two sets of options, is two questions: a group has one aside at
    most, and rows without one are in that of the first. Within a bucket, each row is compared with the first and with
    the one before it, which keeps the work linear on pools made from templates. Raises `Cancelled` between blocks of
    comparisons.
    """
    n = len(rows.numbers)
    pairs = _candidates(rows, threshold)
    content_hashes = np.zeros(n, np.uint64)  # 64 bits of the content of each compared row
    groups = np.arange(n)
    first, similarity = np.full(n, -1), np.zeros(n)  # the first row each was found similar to, and the similarity
    done, total = 0, len(pairs)
    for block in _in_blocks(rows, pairs, monitor):
        monitor.report(Event(TASK, done, total))
        done += len(block)
        ends = groups[block]
        block = block[ends[:, 0] != ends[:, 1]]  # those joined through others need no comparison
        similarities = _compared(rows, block, content_hashes)
        alike = similarities >= threshold
        groups = _joined(groups, block[alike])
        new = np.flatnonzero(alike & (first[block[:, 1]] < 0))[::-1]  # backwards: of several, the first is kept
        first[block[new, 1]], similarity[block[new, 1]] = block[new, 0], similarities[new]
    if total:
        monitor.report(Event(TASK, total, total))
    groups = _apart(groups, rows.asides)
    later = np.flatnonzero((groups != np.arange(n)) & (groups != first))  # joined to the first through others
    for block in _in_blocks(rows, np.stack([groups[later], later], axis=1), monitor):
        similarity[block[:, 1]] = _compared(rows, block, content_hashes)
    return _repeats(rows, groups, content_hashes, similarity)


def _in_blocks(rows: Rows, pairs: Int64s, monitor: Monitor) -> Iterator[Int64s]:
    """The pairs (p, 2) in parts to compare at once: as many as have `CHARACTERS` characters, at least one."""
    while len(pairs):
        monitor.check()
        characters = np.cumsum(rows.lengths[pairs[:MOST_PAIRS]].sum(axis=1))
        block, pairs = np.split(pairs, [max(1, int(np.searchsorted(characters, CHARACTERS)))])
        yield block


def _candidates(rows: Rows, threshold: float) -> Int64s:
    """The pairs (p, 2) to compare: those that share a band, unless their asides or their signatures tell them apart."""
    pairs = _sharing(_bands(rows.hashes.keys.T, rows.hashes.low, threshold), len(rows.numbers))
    asides = rows.asides[pairs]
    pairs = pairs[(asides[:, 0] == asides[:, 1]) | (asides == NO_ASIDE).any(axis=1)]
    return np.asarray(pairs[_worth_comparing(rows.hashes.low, pairs, threshold)], np.int64)


def _bands(keys: _U64, low: NDArray[np.uint8], threshold: float) -> Iterator[_U64]:
    """The keys of each band, (n,): those of 8 values, ``keys`` (16, n), or of as many as are found at a ``threshold``
    below `WIDE`, from ``low`` (n, 128)."""
    if threshold >= WIDE:
        yield from keys
        return
    values = low.shape[1]
    width = next((w for w in range(BAND - 1, 3, -1) if 1 - (1 - threshold**w) ** (values // w) >= FOUND), 3)
    for start in range(0, values - width + 1, width):
        padded = np.zeros((len(low), 8), np.uint8)
        padded[:, :width] = low[:, start : start + width]
        yield padded.view(np.uint64)[:, 0]


def _sharing(bands: Iterable[_U64], n: int) -> Int64s:
    """Pairs (a, b), a < b, of n rows that share a band, each once: with the first of the bucket and with the
    neighbour."""
    codes = [np.empty(0, np.int64)]
    for keys in bands:
        order = np.argsort(keys, kind="stable").astype(np.int64)
        column = keys[order]
        same = np.flatnonzero(column[1:] == column[:-1]) + 1
        starts = np.flatnonzero(np.concatenate([[True], column[1:] != column[:-1]])) if n else np.empty(0, np.int64)
        heads = order[starts[np.searchsorted(starts, same, "right") - 1]]
        codes += [heads * n + order[same], order[same - 1] * n + order[same]]
    return np.asarray(np.stack(np.divmod(np.unique(np.concatenate(codes)), max(n, 1)), axis=1), np.int64)


def _worth_comparing(low: NDArray[np.uint8], pairs: Int64s, threshold: float) -> Bools:
    """Which pairs (p, 2) the signatures (n, 128) do not exclude, (p,)."""
    size = low.shape[1]
    least = threshold * size - DOUBT * (size * threshold * (1 - threshold)) ** 0.5
    worth = np.empty(len(pairs), np.bool_)
    for start in range(0, len(pairs), MOST_PAIRS):
        a, b = pairs[start : start + MOST_PAIRS].T
        worth[start : start + len(a)] = np.count_nonzero(low[a] == low[b], axis=1) >= least
    return worth


def _compared(rows: Rows, pairs: Int64s, content_hashes: _U64) -> Float64s:
    """Similarities of pairs of positions, (p,); ``content_hashes`` is filled in for their rows."""
    places, among = np.unique(pairs, return_inverse=True)
    texts = [normalised(text) for text in rows.texts(places)]
    content_hashes[places] = [
        int.from_bytes(hashlib.blake2b(t.encode(errors="surrogatepass"), digest_size=8).digest()) for t in texts
    ]
    return jaccards(texts, among.reshape(pairs.shape))


def _joined(groups: Int64s, alike: Int64s) -> Int64s:
    """The group of each position, (n,), after the pairs ``alike`` (p, 2) are joined; a group is its first position."""
    parent = np.arange(len(groups))  # of a group, the lowest known one that it is joined with
    left, right = groups[alike].T
    while len(left):
        low, high = np.minimum(left, right), np.maximum(left, right)
        np.minimum.at(parent, high, low)
        while (parent != (higher := parent[parent])).any():
            parent = higher
        left, right = parent[left], parent[right]
        apart = left != right
        left, right = left[apart], right[apart]
    return np.asarray(parent[groups], np.int64)


def _apart(groups: Int64s, asides: NDArray[Any]) -> Int64s:
    """The groups (n,) cut into those with one aside each; rows without one had joined them."""
    n = len(groups)
    told = np.flatnonzero(asides != NO_ASIDE)
    first = np.full(n, n)  # of each group, by its first position, the first that has an aside
    np.minimum.at(first, groups[told], told)
    like = first[groups]
    like[told] = told
    codes = np.unique(asides, return_inverse=True)[1]
    aside = codes[np.where(like < n, like, np.arange(n))]
    _, begins, parts = np.unique(groups * n + aside, return_index=True, return_inverse=True)
    return np.asarray(begins[parts], np.int64)


def _repeats(rows: Rows, groups: Int64s, content_hashes: _U64, similarity: Float64s) -> list[Repeat]:
    """The rows that are not the first of their group, each with its kind and its similarity to the first."""
    outputs: dict[tuple[int, int], set[Any]] = {}
    firsts: dict[tuple[int, int], int] = {}
    repeats = []
    for place in np.flatnonzero(np.bincount(groups)[groups] > 1).tolist():
        head = int(groups[place])
        text = head, int(content_hashes[place])
        before, first = outputs.setdefault(text, set()), firsts.setdefault(text, place)
        if place != head:
            kind = "near" if not before else "exact" if rows.outputs[place] in before else "conflict"
            row, of, same = (int(rows.numbers[each]) for each in (place, head, first))
            repeats.append(Repeat(row, of, kind, float(similarity[place]), same))
        before.add(rows.outputs[place])
    return repeats


def update(workspace: Workspace, threshold: float, monitor: Monitor = SILENT, engine: Engine = INLINE) -> list[Repeat]:
    """Rewrite the table ``duplicates`` over all rows that are not retired; ``engine`` computes their hashes. If rows or
    outputs change meanwhile, as by another `index`, all of them are compared again."""
    while True:
        with workspace.read() as con:
            corrected = columns.number(con, _CORRECTED)
            columns_read = con.execute(
                f"""
                SELECT row, length(input) AS length, md5_number_lower(output) AS output, {_ASIDE} AS aside
                  FROM demonstrations WHERE retired_at IS NULL ORDER BY row
                """
            ).fetchnumpy()
        numbers, lengths = (np.asarray(columns_read[name], np.int64) for name in ("row", "length"))
        outputs, asides = (np.asarray(columns_read[name], np.uint64) for name in ("output", "aside"))
        hashes = stored_hashes(workspace, monitor, reread=True, engine=engine).of_rows(numbers)
        texts = partial(_inputs_at, workspace, numbers)
        repeats = find_repeats(Rows(numbers, lengths, outputs, asides, hashes, texts), threshold, monitor)
        with workspace.write() as con:
            live = columns.numbers(con, "SELECT row FROM demonstrations WHERE retired_at IS NULL ORDER BY row")
            if np.array_equal(live, numbers) and columns.number(con, _CORRECTED) == corrected:
                con.execute("DELETE FROM duplicates")
                if repeats:
                    columns.insert(con, "duplicates", {s: [getattr(r, s) for r in repeats] for s in Repeat.__slots__})
                columns.note(con, COMPARED, str(threshold))
                return repeats


_CORRECTED = "SELECT count(*) FROM output_changes"


def _inputs_at(workspace: Workspace, numbers: Int64s, places: Int64s) -> Sequence[str]:
    return inputs(workspace, numbers[places])


class StoredHashes(NamedTuple):
    """`MinHashes` of every row at its number, the ``keys`` by band: (16, rows), ``low`` (rows, 128)."""

    keys: _U64
    low: NDArray[np.uint8]

    def of_rows(self, numbers: Int64s) -> MinHashes:
        """Those of ascending rows (n,); nothing is copied if they are all rows."""
        if len(numbers) == len(self.low):
            return MinHashes(self.keys.T, self.low)
        return MinHashes(self.keys[:, numbers].T, self.low[numbers])


def stored_hashes(
    workspace: Workspace,
    monitor: Monitor = SILENT,
    *,
    content: _U64 | None = None,
    reread: bool = False,
    engine: Engine = INLINE,
) -> StoredHashes:
    """Hashes of every row: stored ones for rows with unchanged content, the others computed now.

    ``content`` is the result of `content_keys`, if it was computed already; ``reread`` reads the whole file, even if it
    is remembered as checked. Raises `Cancelled` between chunks.
    """
    content = content_keys(workspace) if content is None else content
    path = workspace.path / FILE
    try:
        old, of = _opened(path, reread)
    except (OSError, ValueError, KeyError):
        old, of = _no_hashes(0), np.empty(0, np.uint64)
    if np.array_equal(of, content):
        return old
    same = np.zeros(len(content), np.bool_)
    both = min(len(of), len(content))
    same[:both] = of[:both] == content[:both]
    hashes = _no_hashes(len(content))
    hashes.keys[:, :both], hashes.low[:both] = old.keys[:, :both], old.low[:both]
    lacking = np.flatnonzero((content != 0) & ~same)
    sent: list[Int64s] = []

    def blocks() -> Iterator[tuple[int, Arrays]]:
        for rows, texts in input_blocks(workspace, lacking):
            sent.append(rows)
            yield len(rows), packed(texts)

    arrived = over_shards(
        hash_shard, blocks(), stage=TASK, total=lacking.size, beside=workspace.path / SHARDS, engine=engine,
        need=Resources(threads=2), held=True, monitor=monitor,
    )  # fmt: skip
    for i, arrays in arrived:
        hashes.keys[:, sent[i]], hashes.low[sent[i]] = arrays["keys"].T, arrays["low"]
    try:
        save_sealed(path, {"keys": hashes.keys, "low": hashes.low, "content": content}, {})
        (workspace.path / OLD_FILE).unlink(missing_ok=True)
        return _opened(path)[0]  # the file, whose memory the system can take back
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        monitor.report(Event(TASK, note=f"{path} cannot be written ({told}): recomputed when needed"))
    return hashes


def _opened(path: Path, reread: bool = False) -> tuple[StoredHashes, _U64]:
    """The hashes in a file, and the content keys of their rows. Raises `OSError`, `ValueError` or `KeyError` for a file
    that is missing, damaged or another one."""
    arrays, _ = map_sealed(path, reread=reread)
    hashes, of = StoredHashes(arrays["keys"], arrays["low"]), arrays["content"]
    if hashes.keys.shape != (BANDS, len(of)) or hashes.low.shape != (len(of), BANDS * BAND):
        raise ValueError("not the hashes of these rows")
    return hashes, of


def hash_shard(arrays: Arrays, monitor: Monitor) -> Arrays:
    """The `MinHashes` of packed texts, by name."""
    return min_hashes([normalised(text) for text in unpacked(arrays)], monitor)._asdict()


def _no_hashes(rows: int) -> StoredHashes:
    return StoredHashes(np.zeros((BANDS, rows), np.uint64), np.zeros((rows, BANDS * BAND), np.uint8))


def _asides(queries: Sequence[Query]) -> list[int]:
    """As `_ASIDE` has them for rows."""
    read = f"""
        SELECT {_ASIDE} FROM (SELECT unnest(?::VARCHAR[]) AS context, unnest(?::VARCHAR[][]) AS options,
                                     unnest(?::VARCHAR[]) AS history)
    """
    histories = [history_text(query.history or ()) for query in queries]
    given = [query.context for query in queries], [[*query.options] for query in queries], histories
    return [aside for (aside,) in _memory().cursor().execute(read, given).fetchall()]


@cache
def _memory() -> duckdb.DuckDBPyConnection:
    """A database for expressions: to open one takes as long as hundreds of them."""
    return in_memory()


class Repeats:
    """Finds the rows that a text outside the pool duplicates; built once, used for every query."""

    def __init__(self, workspace: Workspace, hashes: StoredHashes, threshold: float) -> None:
        self._workspace, self._hashes, self._threshold = workspace, hashes, threshold
        self._asked = 0
        self._bands = [*_bands(hashes.keys, hashes.low, threshold)]
        self._orders: list[Int64s] | None = None
        self._texts: dict[int, str] = {}
        """Normalised inputs of rows that were compared; rows never change."""
        self._size = 0
        self._asides: dict[int, int] = {}
        """Asides of rows that were found."""

    @classmethod
    def open(
        cls, workspace: Workspace, threshold: float, monitor: Monitor = SILENT, content: _U64 | None = None
    ) -> Repeats:
        """From the hashes of the last index run; rows without hashes are hashed now. ``content`` as in
        `stored_hashes`."""
        return cls(workspace, stored_hashes(workspace, monitor, content=content), threshold)

    def _sharing(self, keys: Sequence[np.uint64]) -> Int64s:
        """Rows that share a band with the keys, one of each band, ascending. Each band is compared whole until
        `GOES_ON` texts have been asked for; then it is sorted, which takes as long as that, and searched."""
        columns = self._bands
        self._asked += 1
        if self._orders is None and self._asked > GOES_ON:
            self._orders = [np.argsort(column).astype(np.int64) for column in columns]
        if self._orders is None:
            agree = np.zeros(len(self._hashes.low), np.bool_)
            for column, key in zip(columns, keys, strict=True):
                agree |= column == key
            return np.flatnonzero(agree).astype(np.int64)
        buckets = [
            order[column.searchsorted(key, "left", order) : column.searchsorted(key, "right", order)]
            for column, key, order in zip(columns, keys, self._orders, strict=True)
        ]
        return np.unique(np.concatenate(buckets))

    def of_queries(self, queries: Sequence[Query]) -> list[Int64s]:
        """Rows that repeat each query, ascending: as between rows, one question about two passages is two questions."""
        repeats = self.of_texts([query.input for query in queries])
        told = [i for i, q in enumerate(queries) if repeats[i].size and (q.context or q.options or q.history)]
        if not told:
            return repeats
        if missing := sorted({row for i in told for row in repeats[i].tolist()} - self._asides.keys()):
            with self._workspace.read() as con, columns.given(con, "wanted", {"row": np.array(missing)}):
                read = con.execute(f"SELECT row, {_ASIDE} FROM demonstrations SEMI JOIN wanted USING (row)").fetchall()
            self._asides |= dict(read)
        for i, own in zip(told, _asides([queries[i] for i in told]), strict=True):
            repeats[i] = repeats[i][[self._asides[row] in (NO_ASIDE, own) for row in repeats[i].tolist()]]
        return repeats

    def of_texts(self, texts: Sequence[str]) -> list[Int64s]:
        """For each text the rows whose input is an exact or near duplicate of it, ascending. The workspace is opened
        once for all of them, and not at all for texts read before."""
        asked = [normalised(text) for text in texts]
        hashes = min_hashes(asked)
        candidates = [self._near(keys, low) for keys, low in zip(hashes.keys, hashes.low, strict=True)]
        texts_of = self._read([rows for rows in candidates if rows.size <= MOST_READ])
        return [
            self._alike(text, rows, [[texts_of[row] for row in rows.tolist()]])
            if rows.size <= MOST_READ
            else self._alike(text, rows, (read for _, read in self._blocks(rows)))
            for text, rows in zip(asked, candidates, strict=True)
        ]

    def _near(self, keys: _U64, low: NDArray[np.uint8]) -> Int64s:
        """Rows that may be duplicates of a text with these hashes, (16,) and (128,), ascending."""
        candidates = self._sharing([key for (key,) in _bands(keys[:, None], low[None], self._threshold)])
        # the query as one more row, paired with each candidate
        lows = np.concatenate([self._hashes.low[candidates], low[None]])
        pairs = np.stack([np.arange(len(candidates)), np.full(len(candidates), len(candidates))], axis=1)
        return candidates[_worth_comparing(lows, pairs, self._threshold)]

    def _read(self, wanted: Sequence[Int64s]) -> Mapping[int, str]:
        """The texts of at least these rows. Other threads may add to them, and none takes any away."""
        texts, rows = self._texts, {row for some in wanted for row in some.tolist()}
        missing = rows - texts.keys()
        if not missing:
            return texts  # and the workspace is not opened
        if self._size > MOST_KEPT:
            texts, missing, self._size = {}, rows, 0
            self._texts = texts
        for block, read in self._blocks(np.array(sorted(missing), np.int64)):
            texts |= zip(block.tolist(), read, strict=True)
            self._size += sum(map(len, read))
        return texts

    def _blocks(self, rows: Int64s) -> Iterator[tuple[Int64s, list[str]]]:
        """The rows and their normalised inputs, in blocks."""
        for block, read in input_blocks(self._workspace, rows, CHARACTERS):
            yield block, [*map(normalised, read)]

    def _alike(self, asked: str, rows: Int64s, inputs: Iterable[Sequence[str]]) -> Int64s:
        """Those of the rows, whose ``inputs`` come in blocks, that are similar to a text."""
        similar = [np.empty(0)]
        for block in inputs:
            places = np.arange(1, len(block) + 1)
            similar.append(jaccards([asked, *block], np.stack([np.zeros_like(places), places], axis=1)))
        return rows[np.concatenate(similar) >= self._threshold]
