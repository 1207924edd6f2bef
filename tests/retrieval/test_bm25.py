"""The inverted index against rank-bm25, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.errors import Cancelled, WorkspaceError
from icl_curate.engine.base.progress import CancelToken, Event, Monitor
from icl_curate.engine.baselines.bm25_plus import BM25PlusIndex
from icl_curate.engine.retrieval import bm25
from icl_curate.engine.retrieval.checked import map_safetensors, map_sealed, save_sealed
from rank_bm25 import BM25Okapi, BM25Plus

# few words and many repeats: terms in more than half of the documents (floored), repeated and missing ones
WORDS = ["the", "a", "cat", "Dog", "bird", "ist", "grün", "7", "x_y", "(A)", "(b)", "re-do"]
texts_of_words = st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=12)


def reference(texts: list[str], query: str, published: type[BM25Okapi | BM25Plus] = BM25Okapi) -> np.ndarray:
    return published([bm25.tokenise(text) for text in texts]).get_scores(bm25.tokenise(query))


def zipf_texts(n: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(f"w{min(z, 4000)}" for z in rng.zipf(1.3, rng.integers(1, 30))) for _ in range(n)]


def has_words(texts: list[str]) -> bool:
    return any(bm25.tokenise(text) for text in texts)  # rank-bm25 divides by zero otherwise


@settings(max_examples=200, deadline=None)
@given(texts_of_words, st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), st.data())
def test_scores_equal_rank_bm25_on_the_pool_and_on_what_is_left_of_it(
    texts: list[str], query: str, data: st.DataObject
) -> None:
    index = bm25.build(np.arange(len(texts)), texts)
    if has_words(texts):
        assert index.scores(query).tolist() == reference(texts, query).tolist()
        assert BM25PlusIndex(index).scores(query).tolist() == reference(texts, query, BM25Plus).tolist()
    active = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))))
    view = index.restricted(active)
    left = [text for text, keep in zip(texts, active, strict=True) if keep]
    assert view.rows.tolist() == np.flatnonzero(active).tolist()
    if has_words(left):
        assert view.scores(query).tolist() == reference(left, query).tolist()
        assert BM25PlusIndex(view).scores(query).tolist() == reference(left, query, BM25Plus).tolist()
    else:
        assert view.scores(query).tolist() == BM25PlusIndex(view).scores(query).tolist() == [0.0] * len(left)


def test_scores_equal_rank_bm25_on_two_thousand_texts_with_floored_terms() -> None:
    texts = zipf_texts(2000, 0)
    index = bm25.build(np.arange(2000), texts)
    okapi = BM25Okapi([bm25.tokenise(text) for text in texts])
    assert okapi.idf["w1"] == 0.25 * okapi.average_idf  # in more than half of the texts
    for query in [*zipf_texts(20, 1), "w1 w1 w2 unseen w1"]:
        expected = okapi.get_scores(bm25.tokenise(query))
        assert (index.scores(query) == expected).all()
        rows, scores = index.top(query, 20)
        best = np.lexsort((np.arange(2000), -expected))[:20]
        assert rows.tolist() == best.tolist()
        assert scores.tolist() == expected[best].tolist()


def test_top_leaves_out_rows_and_fills_up_with_rows_that_share_no_word() -> None:
    index = bm25.build(np.array([3, 5, 8, 13, 21]), ["red fox", "blue fox fox", "green hen", "hen", "owl"])
    rows, scores = index.top("fox", 3, exclude={5, 99})
    assert rows.tolist() == [3, 8, 13]
    assert scores[0] > 0
    assert scores[1:].tolist() == [0, 0]
    assert index.top("fox", 10, exclude=[3, 5, 8, 13, 21])[0].tolist() == []
    assert index.top("", 2)[0].tolist() == [3, 5]


def test_negative_scores_rank_below_no_overlap() -> None:
    texts = ["a b", "a b", "a b", "c"]  # the average idf is negative, and so is the floor for "a"
    expected = reference(texts, "a")
    assert expected.min() < 0
    rows, scores = bm25.build(np.arange(4), texts).top("a", 4)
    assert rows.tolist() == np.lexsort((np.arange(4), -expected)).tolist()
    assert scores.tolist() == sorted(expected.tolist(), reverse=True)


def test_rows_in_any_order_and_each_once() -> None:
    shuffled = bm25.build(np.array([7, 2, 4]), ["seven fox", "two fox", "four hen"])
    assert shuffled.rows.tolist() == [2, 4, 7]
    assert shuffled.top("seven", 1)[0].tolist() == [7]
    with pytest.raises(ValueError, match="duplicate row number"):
        bm25.build(np.array([1, 1]), ["a", "b"])
    with pytest.raises(ValueError, match="2 rows but 1 texts"):
        bm25.build(np.array([1, 2]), ["a"])


def test_rows_past_the_end_of_active_are_not_active() -> None:
    index = bm25.build(np.array([0, 1, 9]), ["fox", "fox", "fox"])
    assert index.restricted(np.array([True, False])).rows.tolist() == [0]
    assert index.restricted(np.ones(10, bool)) is index


def test_saved_index_reads_back_the_same(tmp_path: Path) -> None:
    texts = [*zipf_texts(300, 2), "Straße 东京 ὀδός \ud800", ""]
    index = bm25.build(np.arange(len(texts)) * 3, texts)
    index.save(tmp_path / "index")
    loaded = bm25.load(tmp_path / "index")
    half = np.arange(len(texts) * 3) % 2 == 0
    for query in [texts[0], texts[-2], "STRASSE straße w3 東京", "nothing of it"]:
        assert loaded.scores(query).tolist() == index.scores(query).tolist()
        assert loaded.restricted(half).scores(query).tolist() == index.restricted(half).scores(query).tolist()
    assert [path.name for path in (tmp_path / "index").iterdir()] == [bm25.FILE]


@pytest.mark.parametrize("texts", [[], ["", "!!"]])
def test_pools_without_words(tmp_path: Path, texts: list[str]) -> None:
    bm25.build(np.arange(len(texts)), texts).save(tmp_path)
    index = bm25.load(tmp_path)
    assert len(index) == len(texts)
    assert index.top("anything", 5)[0].tolist() == list(range(len(texts)))


def test_missing_or_damaged_index_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError) as missing:
        bm25.load(tmp_path)
    assert "icl-curate index" in missing.value.fix
    bm25.build(np.arange(3), ["a", "b", "c"]).save(tmp_path)
    path = tmp_path / bm25.FILE
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(WorkspaceError):
        bm25.load(tmp_path)


def test_a_failed_save_keeps_the_old_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bm25.build(np.arange(3), ["fox", "hen", "owl"]).save(tmp_path)

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="disk full"):
            bm25.build(np.arange(3), ["a", "b", "c"]).save(tmp_path)
    assert bm25.load(tmp_path).top("hen", 1)[0].tolist() == [1]
    assert [path.name for path in tmp_path.iterdir()] == [bm25.FILE]


def test_top_many_is_top_for_each_query() -> None:
    texts = zipf_texts(200, 3)
    index = bm25.build(np.arange(200), texts)
    events: list[Event] = []
    many = index.top_many(texts[:5], 7, exclude=[[i] for i in range(5)], monitor=Monitor(events.append))
    for i, (rows, scores) in enumerate(many):
        alone = index.top(texts[i], 7, [i])
        assert i not in rows
        assert (rows.tolist(), scores.tolist()) == (alone[0].tolist(), alone[1].tolist())
    assert (events[-1].done, events[-1].total) == (5, 5)
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled):
        index.top_many(texts[:5], 7, monitor=Monitor(cancel=token))


def test_option_letters_stay_out() -> None:
    assert bm25.tokenise("Which? (A) a Cat (b) the dog (AB)") == ["which", "a", "cat", "the", "dog", "ab"]


@settings(deadline=None, max_examples=60)
@given(texts_of_words, st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), st.sets(st.integers(0, 11)))
def test_words_taken_apart_make_up_the_score(texts: list[str], query: str, gone: set[int]) -> None:
    active = np.array([i not in gone for i in range(len(texts))])
    if not active.any():
        return
    index = bm25.build(np.arange(len(texts)), texts).restricted(active)
    for at, row in enumerate(index.rows.tolist()):
        words = index.words(query, [row])[0]
        assert sum(added for _, added in words) == pytest.approx(index.scores(query)[at], abs=1e-12)
        asked = bm25.tokenise(query)
        for word, added in words:
            assert added == pytest.approx(index.scores(word)[at] * asked.count(word), abs=1e-12)
            assert word in bm25.tokenise(texts[row])
    for row in np.flatnonzero(~active).tolist():
        with pytest.raises(KeyError):
            index.words(query, [row])


def tensor(shape: object, offsets: object, dtype: object = "F32") -> object:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


HEADS: list[object] = [
    *([], 7, None, {"a": 7}, {"a": {}}, {"__metadata__": 5}),
    *(tensor([2], [0, 8], "F99"), tensor([2], [0, 8], ["F32"]), tensor([2], 8), tensor("2", [0, 8])),
    *(tensor([2], [0, 4]), tensor([-2], [0, 8]), tensor([2], [-8, 0]), tensor([2], [8, 0]), tensor([9], [0, 36])),
    *(tensor([2.5], [0, 10]), tensor([1 << 62, 4], [0, 8]), tensor([2], [0, 8, 9])),
]


@pytest.mark.parametrize("head", HEADS, ids=map(str, range(len(HEADS))))
def test_a_head_that_does_not_fit_its_file_is_refused(tmp_path: Path, head: object) -> None:
    text = json.dumps(head).encode()
    (tmp_path / "x").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(ValueError, match=r"head|metadata|lie|size|missing"):
        map_safetensors(tmp_path / "x")


@pytest.mark.parametrize("content", [b"", b"\1", b"\xff" * 8, b"\xff" * 7 + b"\x7f{}", b"\1" + bytes(7), bytes(99)])
def test_a_file_without_a_head_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match="head"):
        map_safetensors(tmp_path / "x")


def test_parts_of_any_size_give_the_same_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part numbers its own terms; the index numbers them as they first appear in all documents."""
    texts = [f"w{i % 7} w{i * i % 11} w{i % 3} w{i}" for i in range(60)] + ["", "w3 w3 w59", "()"]
    rows = np.arange(len(texts))
    whole = bm25.build(rows, texts)
    whole.save(tmp_path / "whole")
    monkeypatch.setattr(bm25, "_DOCUMENTS", 7)
    monkeypatch.setattr(bm25, "_CHARACTERS", 60)
    bm25.build(rows, texts).save(tmp_path / "parts")
    kept, parts = (map_sealed(tmp_path / name / bm25.FILE)[0] for name in ("whole", "parts"))
    assert {name: array.tobytes() for name, array in kept.items()} == {n: array.tobytes() for n, array in parts.items()}


def test_a_file_written_in_parts_is_one_of_the_format(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    arrays = {
        "bytes": np.arange(7, dtype=np.uint8),
        "wide": np.arange(6, dtype=np.int64).reshape(2, 3)[:, ::2],  # not contiguous
        "empty": np.empty((0, 3), np.float32),
        "half": np.ones((3, 1), np.float16),
    }
    save_sealed(tmp_path / "x", arrays, {"name": "grün"})
    found, metadata = map_sealed(tmp_path / "x", reread=True)
    known = load_file(tmp_path / "x")
    assert metadata["name"] == "grün" and found.keys() == known.keys() == arrays.keys()
    for name, array in arrays.items():
        for read in (found[name], known[name]):
            assert read.dtype == array.dtype and read.tolist() == array.tolist()
        assert found[name].ctypes.data % array.itemsize == 0
    damaged = bytearray((tmp_path / "x").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "x").write_bytes(damaged)
    with pytest.raises(ValueError, match="checksum"):
        map_sealed(tmp_path / "x", reread=True)
