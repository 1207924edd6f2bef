"""Exact and near duplicates of inputs: MinHash (Broder 1997) with banding, confirmed by the true Jaccard similarity.

Each input has a signature of 128 permutations over its character 5-grams, cut into 16 bands of 8; inputs that agree
in a band are compared exactly. Band keys lie in a file beside the workspace, at the rows' own numbers and with the keys
of what the rows say, so that only new rows are ever hashed.
"""

from __future__ import annotations

import re
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..progress import CancelToken, Event, Report, silent, within
from ..store.demonstrations import content_keys, inputs
from ..store.workspace import Workspace, arrow
from .checked import map_sealed, save_sealed

GRAM = 5
BANDS, BAND = 16, 8
FILE, OLD_FILE = "minhash.safetensors", "minhash.npy"
CHUNK = 1_000
"""Texts hashed at once: their 5-grams fit into the processor's cache."""
CHARACTERS = 1 << 20
"""Characters hashed at once, but for a text that is longer by itself: each takes some 50 bytes on the way."""
GRAMS_HELD = 2_000_000
"""5-grams of compared texts that are held at once, some 200 MB: the first text of a bucket is compared many times."""

FETCHED = 50_000
"""Texts read from the database at once."""

_ASIDE = """
    CASE WHEN context = '' AND len(options) = 0 THEN ''
         ELSE md5(lower(context) || chr(31) || array_to_string(list_sort(options), chr(31))) END
"""

_U64 = NDArray[np.uint64]
_SPACE = re.compile(r"\s+")
_RADIX = np.uint64(0x100000001B3)
_draw = np.random.Generator(np.random.PCG64(20_21))  # fixed: keys in a file must mean the same in every release
_FACTORS = _draw.integers(0, 1 << 31, BANDS * BAND, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
_MASKS = _draw.integers(0, 1 << 32, BANDS * BAND, dtype=np.uint32)


def normalised(text: str) -> str:
    """What repeats are judged by: NFKC, case folded, white space folded."""
    return _SPACE.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


def grams(text: str) -> frozenset[str]:
    """Character 5-grams of a normalised text; a shorter text is one gram."""
    return frozenset(text[i : i + GRAM] for i in range(len(text) - GRAM + 1)) or frozenset({text})


def jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    """Size of the intersection over size of the union."""
    common = len(a & b)
    return common / (len(a) + len(b) - common)


def band_keys(texts: Sequence[str], report: Report = silent, cancel: CancelToken | None = None) -> _U64:
    """Keys of normalised texts, (n, 16): two texts that agree in any are candidates."""
    if len(texts) == 1:
        return _chunk_keys(texts)  # a query's: threads would cost more than the work
    keys: list[_U64] = []
    done = 0
    with ThreadPoolExecutor(2) as pool:  # numpy lets go of the lock inside its loops
        for found in pool.map(_chunk_keys, _chunks(texts)):
            if cancel:
                cancel.check()
            keys.append(found)
            done += len(found)
            report(Event("duplicates", done, len(texts)))
    return np.concatenate(keys) if keys else np.empty((0, BANDS), np.uint64)


def _chunks(texts: Sequence[str]) -> list[Sequence[str]]:
    """The texts in parts of at most `CHUNK` texts and `CHARACTERS` characters; a longer text is a part of its own."""
    parts: list[Sequence[str]] = []
    start = size = 0
    for i, text in enumerate(texts):
        if i > start and (i - start == CHUNK or size + len(text) > CHARACTERS):
            parts.append(texts[start:i])
            start, size = i, 0
        size += len(text)
    return [*parts, texts[start:]] if texts else parts


def _chunk_keys(texts: Sequence[str]) -> _U64:
    hashes, starts = _gram_hashes(texts)
    high = (hashes >> np.uint64(32)).astype(np.uint32)  # 32 bits: half the memory to pass through, 128 times
    signature = np.empty((BANDS * BAND, len(texts)), np.uint32)
    scratch = np.empty_like(high)
    for i, (factor, mask) in enumerate(zip(_FACTORS, _MASKS, strict=True)):
        np.bitwise_xor(high, mask, out=scratch)
        np.multiply(scratch, factor, out=scratch)  # by an odd number: a permutation of the 32-bit numbers
        np.minimum.reduceat(scratch, starts, out=signature[i])
    keys = np.zeros((BANDS, len(texts)), np.uint64)
    for row in range(BAND):
        keys = _mixed(keys * _RADIX + signature.reshape(BANDS, BAND, -1)[:, row])
    return keys.T


def _gram_hashes(texts: Sequence[str]) -> tuple[_U64, NDArray[np.int64]]:
    """Hashes of all grams, text after text, and where each text begins. Every text has at least one gram."""
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
    """A row that repeats an earlier one; see the table ``duplicates``."""

    row: int
    of: int
    kind: str
    similarity: float


def find_repeats(
    rows: NDArray[np.int64],
    texts: Sequence[str],
    outputs: Sequence[str],
    asides: Sequence[str],
    keys: _U64,
    threshold: float,
) -> list[Repeat]:
    """Duplicate groups among rows (n,), ascending, with their normalised inputs, outputs and band keys (n, 16).

    Two inputs of Jaccard similarity ``threshold`` or more belong together, and so does what is connected through
    others. One question about two passages, or with two sets of options, is two questions: ``asides`` stand for
    passage and options, empty where a row has neither, and must agree where both rows have one. Within a bucket each
    row is compared with the first and with the one before it, which keeps the work linear on pools made from
    templates.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    n = len(rows)
    pairs = _candidates(keys)
    grams_of = _held_grams(texts)
    alike = [
        (a, b)
        for a, b in pairs.tolist()
        if (asides[a] == asides[b] or not asides[a] or not asides[b])
        and (texts[a] == texts[b] or jaccard(grams_of(a), grams_of(b)) >= threshold)
    ]
    if not alike:
        return []
    left, right = np.array(alike, np.int64).T
    _, labels = connected_components(coo_matrix((np.ones(len(left)), (left, right)), (n, n)), directed=False)
    first = np.full(labels.max() + 1, n, np.int64)
    np.minimum.at(first, labels, np.arange(n))
    said: dict[str, set[str]] = {}
    repeats = []
    for i in np.flatnonzero(np.bincount(labels)[labels] > 1).tolist():
        head = int(first[labels[i]])
        before = said.setdefault(texts[i], set())
        if i != head:
            kind = "near" if not before else "exact" if outputs[i] in before else "conflict"
            repeats.append(Repeat(int(rows[i]), int(rows[head]), kind, jaccard(grams_of(i), grams_of(head))))
        before.add(outputs[i])
    return repeats


def _held_grams(texts: Sequence[str]) -> Callable[[int], frozenset[str]]:
    """`grams` of the texts by their numbers, the `GRAMS_HELD` used latest held: all of a pool of long texts would take
    a hundred times the room of the texts."""
    known: OrderedDict[int, frozenset[str]] = OrderedDict()
    held = 0

    def grams_of(i: int) -> frozenset[str]:
        nonlocal held
        if i in known:
            known.move_to_end(i)
            return known[i]
        found = known[i] = grams(texts[i])
        held += len(found)
        while held > GRAMS_HELD and len(known) > 1:
            held -= len(known.popitem(last=False)[1])
        return found

    return grams_of


def _candidates(keys: _U64) -> NDArray[np.int64]:
    """Pairs (a, b), a < b, that share a band, each once: with the first of the bucket and with the neighbour."""
    n = len(keys)
    codes = [np.empty(0, np.int64)]
    for band in range(BANDS):
        order = np.argsort(keys[:, band], kind="stable").astype(np.int64)
        column = keys[order, band]
        same = np.flatnonzero(column[1:] == column[:-1]) + 1
        starts = np.flatnonzero(np.concatenate([[True], column[1:] != column[:-1]])) if n else np.empty(0, np.int64)
        heads = order[starts[np.searchsorted(starts, same, "right") - 1]]
        codes += [heads * n + order[same], order[same - 1] * n + order[same]]
    found = np.unique(np.concatenate(codes))
    return np.stack([found // max(n, 1), found % max(n, 1)], axis=1)


def update(
    workspace: Workspace, threshold: float, report: Report = silent, cancel: CancelToken | None = None
) -> list[Repeat]:
    """Write the table ``duplicates`` anew, over every row not retired."""
    with workspace.read() as con:
        table = arrow(
            con,
            f"SELECT row, input, output, {_ASIDE} AS aside FROM demonstrations WHERE retired_at IS NULL ORDER BY row",
        )
    rows = np.asarray(table.column("row").to_numpy(), np.int64)
    texts = [normalised(text) for text in table.column("input").to_pylist()]
    outputs, asides = table.column("output").to_pylist(), table.column("aside").to_pylist()
    keys = kept_keys(workspace, report, cancel, anew=True)
    repeats = find_repeats(rows, texts, outputs, asides, np.ascontiguousarray(keys.T[rows]), threshold)
    with workspace.write() as con:
        con.execute("DELETE FROM duplicates")
        if repeats:
            con.register("found", pa.Table.from_pylist([{s: getattr(r, s) for s in Repeat.__slots__} for r in repeats]))
            con.execute('INSERT INTO duplicates SELECT row, "of", kind, similarity FROM found')
            con.unregister("found")
        con.execute("INSERT OR REPLACE INTO meta VALUES ('near_duplicate', ?)", [str(threshold)])
    return repeats


def kept_keys(
    workspace: Workspace,
    report: Report = silent,
    cancel: CancelToken | None = None,
    *,
    content: _U64 | None = None,
    anew: bool = False,
) -> _U64:
    """Band keys of every row, (16, rows): those kept for rows that say what they said then, the others hashed now.

    ``content`` is what `content_keys` gives, where that was read already; ``anew`` reads the file whole first, whatever
    is remembered of it. Raises `Cancelled` between chunks.
    """
    content = content_keys(workspace) if content is None else content
    path = workspace.path / FILE
    try:
        found, _ = map_sealed(path, anew=anew)
        keys, of = found["keys"], found["content"]
        if keys.shape != (BANDS, len(of)):
            raise ValueError("not the keys of these rows")
    except (OSError, ValueError, KeyError):
        keys, of = np.empty((BANDS, 0), np.uint64), np.empty(0, np.uint64)
    if np.array_equal(of, content):
        return keys
    known = min(len(of), len(content))
    lacking = np.flatnonzero(content)
    lacking = (
        lacking[(lacking >= known) | (of[np.minimum(lacking, known - 1)] != content[lacking])] if known else lacking
    )
    grown = np.zeros((BANDS, len(content)), np.uint64)
    grown[:, :known] = keys[:, :known]
    for start in range(0, lacking.size, FETCHED):
        rows = lacking[start : start + FETCHED]
        texts = [normalised(text) for text in inputs(workspace, rows)]
        grown[:, rows] = band_keys(texts, within(report, start, lacking.size), cancel).T
    try:
        save_sealed(path, {"keys": grown, "content": content}, {})
        (workspace.path / OLD_FILE).unlink(missing_ok=True)
    except OSError as error:
        report(Event("duplicates", note=f"{path} cannot be written ({error.strerror}): hashed again when needed"))
    return grown


class Repeats:
    """Finds the rows that a text nobody has indexed repeats; made once, asked for every query."""

    def __init__(self, workspace: Workspace, keys: _U64, threshold: float) -> None:
        self._workspace, self._keys, self._threshold = workspace, keys, threshold

    @classmethod
    def open(
        cls,
        workspace: Workspace,
        threshold: float,
        report: Report = silent,
        cancel: CancelToken | None = None,
        content: _U64 | None = None,
    ) -> Repeats:
        """Over the keys of the last index run; rows without one are hashed now. ``content`` as in `kept_keys`."""
        return cls(workspace, kept_keys(workspace, report, cancel, content=content), threshold)

    def of_text(self, text: str) -> NDArray[np.int64]:
        """Rows whose input the text repeats, exactly or nearly, ascending."""
        asked = normalised(text)
        agree = np.zeros(self._keys.shape[1], np.bool_)
        for column, key in zip(self._keys, band_keys([asked])[0], strict=True):
            agree |= column == key
        candidates = np.flatnonzero(agree).astype(np.int64)
        if not candidates.size:
            return candidates  # and the workspace stays closed
        wanted = grams(asked)
        same: Iterable[bool] = (
            jaccard(grams(normalised(other)), wanted) >= self._threshold
            for other in inputs(self._workspace, candidates)
        )
        return candidates[np.fromiter(same, np.bool_, len(candidates))]
