"""The int8 copy of the vectors: an exact search by it, and what is stored of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.arrays import step_of
from icl_curate.engine.base.errors import Cancelled
from icl_curate.engine.base.progress import CancelToken, Event, Monitor
from icl_curate.engine.retrieval import artefacts, dense
from icl_curate.engine.retrieval.dense import Codes, DenseIndex, coded, codes_of
from icl_curate.engine.retrieval.encoder import unit
from icl_curate.engine.retrieval.vectors import Vectors

WIDTH = 24


def vectors_like(draw: np.random.Generator, rows: int, kinds: int, noise: float) -> np.ndarray:
    """Rows near some centres, so that many cosines differ by less than int8 can tell."""
    centres = draw.normal(size=(kinds, WIDTH))
    return unit((centres[draw.integers(0, kinds, rows)] + noise * draw.normal(size=(rows, WIDTH))).astype(np.float32))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 6000), kinds=st.integers(1, 40), noise=st.sampled_from([0.0, 1e-3, 0.05, 1.0]),
    k=st.integers(0, 40), kept=st.sampled_from([1.0, 0.5, 0.02]), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_a_search_by_codes_is_the_search_of_the_vectors_to_the_bit(
    rows: int, kinds: int, noise: float, k: int, kept: float, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    matrix = vectors_like(draw, rows, kinds, noise)
    some = np.flatnonzero(draw.random(rows) <= kept)
    queries = np.concatenate([matrix[draw.integers(0, rows, 3)], unit(draw.normal(size=(2, WIDTH)).astype(np.float32))])
    exclude = [draw.integers(0, rows, int(draw.integers(0, 9))).tolist() for _ in queries]
    plain, by_codes = DenseIndex(matrix, some), DenseIndex(matrix, some, coded(matrix))
    for expected, found in zip(
        plain.top_many(queries, k, exclude), by_codes.top_many(queries, k, exclude), strict=True
    ):
        assert found[0].tolist() == expected[0].tolist()
        assert found[1].tolist() == expected[1].tolist()
    truth = np.rint((matrix[some].astype(np.float64) * queries[0]).sum(axis=1) / step_of(WIDTH))
    truth[np.isin(some, exclude[0])] = -np.inf
    order = np.argsort(-truth, kind="stable")[:k]
    assert by_codes.top(queries[0], k, exclude[0])[0].tolist() == some[order[truth[order] > -np.inf]].tolist()


@settings(max_examples=60, deadline=None)
@given(size=st.floats(1e-20, 1e3), seed=st.integers(0, 2**32 - 1))
def test_the_stored_error_is_what_a_row_lost(size: float, seed: int) -> None:
    vectors = (size * np.random.default_rng(seed).normal(size=(30, WIDTH))).astype(np.float32)
    vectors[7] = 0
    found = coded(vectors)
    lost = np.linalg.norm(vectors - found.codes.astype(np.float64) * found.scales[:, :1], axis=1)
    assert np.allclose(found.scales[:, 1], lost, rtol=1e-3, atol=1e-6 * size + 1e-12)
    assert (lost <= np.abs(vectors).max(axis=1) / 127 * 0.51 * WIDTH**0.5).all()
    assert found.codes.dtype == np.int8 and not found.codes[7].any() and not found.scales[7].any()


def test_few_rows_are_compared_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = unit(np.random.default_rng(3).normal(size=(20_000, 64)).astype(np.float32))
    index = DenseIndex(matrix, np.arange(20_000), coded(matrix))
    compared: list[int] = []
    best = DenseIndex._best

    def counted(self: DenseIndex, near: np.ndarray, query: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        compared.append(len(near))
        return best(self, near, query, k)

    monkeypatch.setattr(DenseIndex, "_best", counted)
    index.top_many(matrix[:16], 20)
    assert len(compared) == 16 and 20 <= min(compared) <= max(compared) < 200


@given(rows=st.integers(0, 100_000), k=st.integers(0, 3000), most=st.integers(1, 1 << 20))
def test_parts_cover_every_row_once(rows: int, k: int, most: int) -> None:
    first, then = dense._parts(rows, k, max(most, rows // 50 + 1))
    spans = [*first, *then]
    assert [i for begin, end in spans for i in (begin, end)] == [
        i for j, (begin, end) in enumerate(spans) for i in ((spans[j - 1][1] if j else 0), end)
    ]
    assert (spans[-1][1] if spans else 0) == rows
    assert all(0 < end - begin <= max(most, rows // 50 + 1) for begin, end in spans)


# the files


def stored(folder: Path, rows: int, seed: int = 0) -> tuple[Vectors, np.ndarray]:
    store = Vectors.create(folder, "random", WIDTH)
    matrix = unit(np.random.default_rng(seed).normal(size=(rows, WIDTH)).astype(np.float32))
    store.write(np.arange(rows), matrix, np.arange(1, rows + 1, dtype=np.uint64))
    return store, matrix


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Windows of 100 rows; the list gets the number of each that is made."""
    monkeypatch.setattr(dense, "WINDOW", 100)
    monkeypatch.setattr(dense, "BLOCK", 30)
    made: list[int] = []
    make = dense._CodeFiles.make

    def noted(self: dense._CodeFiles, window: int) -> None:
        made.append(window)
        make(self, window)

    monkeypatch.setattr(dense._CodeFiles, "make", noted)
    return made


def agree(found: Codes | None, matrix: np.ndarray) -> None:
    assert found is not None
    expected = coded(matrix)
    assert found.codes.tolist() == expected.codes.tolist()
    assert np.allclose(found.scales, expected.scales, atol=1e-7)


def test_codes_are_made_once_and_again_where_vectors_changed(tmp_path: Path, small: list[int]) -> None:
    store, matrix = stored(tmp_path, 450)
    agree(codes_of(store), matrix)
    assert small == [0, 1, 2, 3, 4]
    agree(codes_of(Vectors.open(tmp_path)), matrix)
    assert len(small) == 5
    store.write(np.array([210, 470]), matrix[[3, 4]], np.array([7, 8], np.uint64))
    changed = np.concatenate([matrix, np.zeros((21, WIDTH), np.float32)])
    changed[[210, 470]] = matrix[[3, 4]]
    agree(codes_of(store), changed)
    assert small[5:] == [2, 4]


@pytest.mark.parametrize("name", [dense.CODES, dense.SCALES, dense.WINDOWS])
def test_damaged_codes_are_made_again(tmp_path: Path, small: list[int], name: str) -> None:
    store, matrix = stored(tmp_path, 450)
    codes_of(store)
    path = tmp_path / name
    content = bytearray(path.read_bytes())
    place = {dense.CODES: 250 * WIDTH + 3, dense.SCALES: 250 * 8 + 5, dense.WINDOWS: 2 * 16 + 9}[name]
    content[place] ^= 1
    path.write_bytes(content)
    agree(codes_of(store), matrix)
    assert small[5:] == [2]
    path.write_bytes(content[:-5])  # cut short
    agree(codes_of(store), matrix)
    assert set(small[6:]) >= {4}
    path.unlink()
    agree(codes_of(store), matrix)


def test_what_was_made_before_a_stop_is_kept(tmp_path: Path, small: list[int]) -> None:
    store, matrix = stored(tmp_path, 450)
    token = CancelToken()

    def stop(event: Event) -> None:
        if event.done == 200:
            token.cancel()

    with pytest.raises(Cancelled):
        codes_of(store, Monitor(stop, token))
    assert small == [0, 1, 2]
    agree(codes_of(store), matrix)
    assert small == [0, 1, 2, 3, 4]


def test_small_pools_have_no_codes_and_unwritable_folders_do_without(
    tmp_path: Path, small: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = stored(tmp_path, 450)
    assert artefacts.search_codes(store, 450) is None and not small
    monkeypatch.setattr(artefacts, "CODED_FROM", 450)
    said: list[Event] = []

    def full(path: Path, size: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(dense, "grow", full)
        assert artefacts.search_codes(store, 450, Monitor(said.append)) is None
    assert "cannot be stored" in said[-1].note and "No space left" in said[-1].note
    assert artefacts.search_codes(store, 450) is not None and len(small) > 5
    with monkeypatch.context() as without:
        without.setattr(dense, "installed", lambda module: module != "numba")
        assert artefacts.search_codes(store, 450) is None


def test_a_cancelled_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "PART", 64)
    matrix = unit(np.random.default_rng(0).normal(size=(3000, WIDTH)).astype(np.float32))
    token = CancelToken()

    def stop(event: Event) -> None:
        if event.done:
            token.cancel()

    with pytest.raises(Cancelled):
        DenseIndex(matrix, np.arange(3000), coded(matrix)).top_many(matrix[:50], 3, monitor=Monitor(stop, token))
