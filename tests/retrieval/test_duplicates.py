"""Duplicates against brute force over every pair."""

from __future__ import annotations

import json
import random
import tracemalloc
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.retrieval import duplicates
from icl_curate.engine.retrieval.duplicates import (
    CHARACTERS,
    FILE,
    NO_ASIDE,
    MinHashes,
    Repeat,
    Repeats,
    Rows,
    StoredHashes,
    find_repeats,
    jaccards,
    min_hashes,
    normalised,
)
from icl_curate.engine.select.selector import Selector
from icl_curate.engine.store.decisions import relabel
from icl_curate.engine.store.demonstrations import fetch, groups
from icl_curate.engine.store.workspace import Workspace
from numpy.typing import NDArray

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def edited(draw: random.Random, text: str, edits: int) -> str:
    letters = list(text)
    for _ in range(edits):
        letters[draw.randrange(len(letters))] = draw.choice(LETTERS)
    return "".join(letters)


def texts_with_edits(n: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    found = []
    for _ in range(n):
        text = " ".join("".join(draw.choices(LETTERS, k=draw.randint(2, 9))) for _ in range(draw.randint(8, 20)))
        found += [text, edited(draw, text, draw.randint(0, 5))]
    return found


def similarity(a: str, b: str) -> float:
    """The Jaccard similarity of the sets of 5-grams, from its definition."""

    def grams(text: str) -> set[str]:
        return {text[i : i + 5] for i in range(len(text)) if len(text[i : i + 5]) == 5} or {text}

    left, right = grams(a), grams(b)
    return len(left & right) / len(left | right)


def repeats_of(
    texts: list[str],
    outputs: list[str] | None = None,
    asides: list[str] | None = None,
    keys: NDArray[np.uint64] | None = None,
    numbers: NDArray[np.int64] | None = None,
) -> list[Repeat]:
    n = len(texts)
    told = Rows(
        np.arange(n) if numbers is None else numbers,
        np.array([len(text) for text in texts]),
        np.array(outputs or ["x"] * n),
        np.array([hash(aside) if aside else NO_ASIDE for aside in asides or [""] * n]),
        min_hashes(texts) if keys is None else MinHashes(keys, min_hashes(texts).low),
        lambda places: [texts[i] for i in places],
    )
    return find_repeats(told, 0.8)


@given(st.lists(st.text(st.sampled_from("ab \U0001f600é\ud800"), max_size=20), min_size=1, max_size=9))
def test_jaccard_is_that_of_the_sets_of_five_grams(texts: list[str]) -> None:
    pairs = np.array([(a, b) for a in range(len(texts)) for b in range(len(texts))])
    assert jaccards(texts, pairs).tolist() == [similarity(texts[a], texts[b]) for a, b in pairs]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=12))
def test_keys_depend_on_the_text_alone(texts: list[str]) -> None:
    together = min_hashes(texts)
    assert together.keys.shape == (len(texts), 16) and together.low.shape == (len(texts), 128)
    for i, text in enumerate(texts):
        alone = min_hashes([text])
        assert np.array_equal(alone.keys[0], together.keys[i]) and np.array_equal(alone.low[0], together.low[i])


def test_a_band_agrees_as_often_as_the_theory_says() -> None:
    """P(some of 16 bands of 8 agree) = 1 - (1 - J^8)^16 (Leskovec, Rajaraman and Ullman, section 3.4)."""
    texts = texts_with_edits(3000, 1)
    keys = min_hashes(texts).keys
    agree = (keys[::2] == keys[1::2]).any(axis=1)
    j = np.array([similarity(a, b) for a, b in zip(texts[::2], texts[1::2], strict=True)])
    wanted = 1 - (1 - j**8) ** 16
    for low, high in ((0.3, 0.55), (0.55, 0.7), (0.7, 0.8), (0.8, 1.0)):
        chosen = (j >= low) & (j < high)
        assert chosen.sum() > 50
        error = (wanted[chosen] * (1 - wanted[chosen])).sum() ** 0.5
        assert abs(agree[chosen].sum() - wanted[chosen].sum()) < 5 * max(error, 1)
    assert agree[j == 1].all()


@pytest.mark.parametrize("threshold", [0.5, 0.55, 0.6, 0.65, 0.7, 0.75])
def test_pairs_at_a_lower_threshold_are_found_as_surely(threshold: float, tmp_path: Path) -> None:
    draw = random.Random(5)
    pairs: list[tuple[str, str]] = []
    while len(pairs) < 150:
        text = " ".join("".join(draw.choices(LETTERS, k=6)) for _ in range(30))
        other = " ".join(word if draw.random() > 0.2 else "".join(draw.choices(LETTERS, k=6)) for word in text.split())
        if threshold <= similarity(text, other) < threshold + 0.05:
            pairs.append((text, other))
    path = tmp_path / "pool.jsonl"
    rows = [{"input": text, "output": "x"} for pair in pairs for text in pair]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    workspace = Workspace.create(tmp_path / "w")
    report = index_pool(workspace, IndexPlan(paths=(str(path),), near_duplicate=threshold))
    assert report.duplicates is not None and report.duplicates["near"] >= 0.95 * len(pairs)
    found = Repeats.open(workspace, threshold).of_texts([text for text, _ in pairs])  # more than `GOES_ON`
    assert sum(2 * i + 1 in rows.tolist() for i, rows in enumerate(found)) >= 0.95 * len(pairs)


def test_signatures_agree_as_often_as_texts_are_similar_and_once_in_256_by_chance() -> None:
    """P(low 8 bits agree) = J + (1 - J) / 256 (Li and König 2010, theorem 1)."""
    texts = texts_with_edits(2000, 7)
    low = min_hashes(texts).low
    agree = (low[::2] == low[1::2]).mean(axis=1)
    j = np.array([similarity(a, b) for a, b in zip(texts[::2], texts[1::2], strict=True)])
    wanted = j + (1 - j) / 256
    error = np.sqrt(np.maximum(wanted * (1 - wanted), 1e-4) / 128)
    assert abs(((agree - wanted) / error).mean()) < 0.15
    assert (np.abs(agree - wanted) < 5 * error).all()


def test_a_pair_far_below_the_threshold_is_not_even_read() -> None:
    draw = random.Random(8)
    texts = ["".join(draw.choices(LETTERS, k=100)) for _ in range(40)]
    texts[7] = texts[0][:-1]
    read: set[int] = set()

    def read_texts(places: NDArray[np.int64]) -> list[str]:
        read.update(places.tolist())
        return [texts[i] for i in places]

    rows = Rows(
        np.arange(40), np.full(40, 100), np.zeros(40), np.full(40, NO_ASIDE),
        MinHashes(np.zeros((40, 16), np.uint64), min_hashes(texts).low),  # one bucket holds them all
        read_texts,
    )  # fmt: skip
    assert [(repeat.row, repeat.of) for repeat in find_repeats(rows, 0.8)] == [(7, 0)]
    assert read == {0, 7}


def test_groups_are_those_of_brute_force_where_the_similarity_is_high() -> None:
    draw = random.Random(3)
    texts = texts_with_edits(120, 2)
    draw.shuffle(texts)
    rows = np.arange(len(texts), dtype=np.int64) * 3 + 5
    found = {r.row: r for r in repeats_of(texts, numbers=rows)}
    for a, b in combinations(range(len(texts)), 2):
        s = similarity(texts[a], texts[b])
        of_a, of_b = (found[int(rows[i])].of if int(rows[i]) in found else int(rows[i]) for i in (a, b))
        if s >= 0.93:  # a pair this alike is missed once in a million
            assert of_a == of_b
        elif s < 0.5:
            assert of_a != of_b  # no text here has three versions that could link strangers
    assert all(r.of < r.row and r.similarity >= 0.8 for r in found.values())


def test_kinds() -> None:
    texts = ["what is the capital of france", "what is the capital of france", "what is the capital of france"]
    texts = [*texts, "what is the capital of francs", "", "", "abc"]
    outputs = ["paris", "paris", "lyon", "paris", "a", "a", "b"]
    found = repeats_of(texts, outputs)
    assert [(r.row, r.of, r.kind) for r in found] == [
        (1, 0, "exact"),
        (2, 0, "conflict"),
        (3, 0, "near"),
        (5, 4, "exact"),
    ]


@pytest.mark.parametrize("damage", ["none", "cut", "gone"])
def test_rows_added_later_join_the_groups_of_a_fresh_index(tmp_path: Path, damage: str) -> None:
    texts = texts_with_edits(150, 4)
    stores = []
    for name, cuts in (("steps", (100, 200, 300)), ("fresh", (300,))):
        store = Workspace.create(tmp_path / name)
        path = tmp_path / f"{name}.jsonl"
        for cut in cuts:
            rows = [{"id": str(i), "input": text, "output": "x", "source": "s"} for i, text in enumerate(texts[:cut])]
            path.write_text("\n".join(map(json.dumps, rows)))
            kept = store.path / FILE
            if damage == "gone":
                kept.unlink(missing_ok=True)
            elif damage == "cut" and kept.exists():
                kept.write_bytes(kept.read_bytes()[:300])
            index_pool(store, IndexPlan(paths=(str(path),)))
        stores.append(store)
    assert groups(stores[0]).tolist() == groups(stores[1]).tolist()
    assert len(set(groups(stores[0]).tolist())) < 300


def test_a_text_nobody_indexed_finds_what_it_repeats(tmp_path: Path) -> None:
    draw = random.Random(6)
    texts = texts_with_edits(100, 5)
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(json.dumps({"input": text, "output": "x"}) for text in texts))
    store = Workspace.create(tmp_path / "w")
    index_pool(store, IndexPlan(paths=(str(path),)))
    repeats = Repeats.open(store, 0.8)
    for i in draw.sample(range(len(texts)), 40):
        asked = edited(draw, texts[i], 1).upper()
        alike = [similarity(normalised(asked), normalised(text)) for text in texts]
        found = set(repeats.of_texts([asked])[0].tolist())
        assert (
            {row for row, s in enumerate(alike) if s >= 0.93}
            <= found
            <= {row for row, s in enumerate(alike) if s >= 0.8}
        )
    assert repeats.of_texts(["something else entirely, in other words"])[0].tolist() == []


def test_one_question_about_two_passages_is_two_questions_outside_of_the_pool_too(tmp_path: Path) -> None:
    asked = [
        {"input": "Who is named?", "context": "Ann came.", "output": "Ann"},
        {"input": "Who is named?", "context": "Bob came.", "output": "Bob"},
        {"input": "who is named?", "context": "ann came.", "output": "Ann"},
        {"input": "Who is named?", "output": "nobody"},
        {"input": "Who is named?", "options": ["Ann", "Bob"], "output": "Bob"},
        {"input": "Who is named?", "options": ["Bob", "Ann"], "output": "Bob"},
        {"input": "Who is named?", "history": [{"role": "user", "content": "Ann came."}], "output": "Ann"},
    ]
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(map(json.dumps, asked)))
    index_pool(store := Workspace.create(tmp_path / "w"), IndexPlan(paths=(str(path),)))
    repeats, rows = Repeats.open(store, 0.8), fetch(store, range(len(asked)))
    others = [{3}, {3}, {3}, {0, 1, 2, 4, 5, 6}, {3}, {3}, {3}]
    others[0] |= {2}
    others[2] |= {0}
    others[4] |= {5}
    others[5] |= {4}
    for _ in range(2):  # what was read is kept
        found = repeats.of_queries([replace(row.as_query(), row=None) for row in rows])
        assert [{*each.tolist()} for each in found] == [other | {row} for row, other in enumerate(others)]
    selector = Selector(store, "bm25", k=7)
    assert [shot.demonstration.row for shot in selector.select({**asked[1], "context": "Cid came."})] != []


def test_after_many_texts_the_same_repeats_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(7)
    texts = texts_with_edits(80, 5)
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(json.dumps({"input": text, "output": "x"}) for text in texts))
    store = Workspace.create(tmp_path / "w")
    index_pool(store, IndexPlan(paths=(str(path),)))
    asked = [edited(draw, text, 1) for text in texts] + ["something else entirely, in other words"]
    compared = Repeats.open(store, 0.8)
    monkeypatch.setattr(duplicates, "GOES_ON", len(asked))
    first = [compared.of_texts([text])[0].tolist() for text in asked]
    monkeypatch.setattr(duplicates, "GOES_ON", 0)
    searched = Repeats.open(store, 0.8)
    assert [searched.of_texts([text])[0].tolist() for text in asked] == first
    assert sum(map(len, first)) > len(texts) // 2
    opened: list[int] = []
    reading = duplicates.input_blocks
    monkeypatch.setattr(duplicates, "input_blocks", lambda *given: opened.append(1) or reading(*given))
    for most_read, most_kept, times in ((1_000, 1 << 25, 1), (1_000, 0, 2), (0, 0, 2 * len(asked))):
        monkeypatch.setattr(duplicates, "MOST_READ", most_read)
        monkeypatch.setattr(duplicates, "MOST_KEPT", most_kept)
        opened.clear()
        together = Repeats.open(store, 0.8)
        assert [rows.tolist() for rows in together.of_texts(asked)] == first
        assert [rows.tolist() for rows in together.of_texts(asked[::-1])] == first[::-1]
        assert len(opened) <= times  # a workspace that another process holds is not waited for once a query


@pytest.mark.parametrize("size", [1, 5, 80, 2_100])
def test_one_text_has_the_hashes_it_has_among_others(size: int) -> None:
    text = "".join(random.Random(size).choices("abcdefgh ", k=size))
    alone, among = min_hashes([text]), min_hashes(["another text", text])
    assert np.array_equal(alone.keys[0], among.keys[1]) and np.array_equal(alone.low[0], among.low[1])


def test_one_question_about_two_passages_is_two_questions() -> None:
    texts = [normalised("what is the main finding of the study described above")] * 3
    assert repeats_of(texts[:2], ["a", "b"], ["passage one", "passage two"]) == []
    same = repeats_of(texts, ["a", "a", "b"], ["passage one", "passage one", "passage two"])
    assert [(r.row, r.of, r.kind) for r in same] == [(1, 0, "exact")]
    for asides, repeats in (
        (["one", "two", ""], [(2, 0, "exact")]),
        (["", "two", "one"], [(1, 0, "conflict")]),
        (["one", "", "two"], [(1, 0, "conflict")]),
        (["", "", "two"], [(1, 0, "conflict"), (2, 0, "exact")]),
    ):
        found = repeats_of(texts, ["a", "b", "a"], asides)
        assert [(r.row, r.of, r.kind) for r in found] == repeats, "a row without passage does not join two others"
    found = repeats_of(texts + texts[:1], ["a", "b", "b", "a"], ["one", "two", "two", ""])
    assert [(r.row, r.of, r.kind) for r in found] == [(2, 1, "exact"), (3, 0, "exact")]


def test_long_texts_are_compared_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "CHARACTERS", 20_000)
    draw = random.Random(0)
    texts = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz ", k=2_000)) for _ in range(300)]
    texts[150] = texts[0][:-3]
    one_bucket = np.zeros((len(texts), 16), np.uint64)
    tracemalloc.start()
    try:
        found = repeats_of(texts, keys=one_bucket)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(repeat.row, repeat.of, repeat.kind) for repeat in found] == [(150, 0, "near")]
    assert peak < 5e6, "the 5-grams of all texts were held: 300 times 2,000 of them take 60 MB"


def test_rows_join_through_others_whatever_is_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    letters = "".join(draw.choices(LETTERS, k=500))
    texts = [letters[8 * i :][:200] for i in range(30)]  # each a step from the one before; the last far from the first
    places = np.arange(len(texts), dtype=np.uint64)
    keys = places[:, None] + np.arange(1, 17, dtype=np.uint64) * 1000  # no two rows agree …
    keys[:, 0], keys[:, 1] = places // 2, (places + 1) // 2  # … but each and the next
    wanted = repeats_of(texts, keys=keys)
    assert {repeat.of for repeat in wanted} == {0} and min(repeat.similarity for repeat in wanted) < 0.8
    monkeypatch.setattr(duplicates, "MOST_PAIRS", 3)
    assert repeats_of(texts, keys=keys) == wanted


def test_texts_of_any_length_are_hashed_in_parts() -> None:
    lengths = [1, CHARACTERS + 5, 3, 3, CHARACTERS - 6, 7, 0]
    texts = ["x" * length for length in lengths]
    parts = duplicates._chunks(texts)
    assert [text for part in parts for text in part] == texts
    assert all(len(part) == 1 or sum(map(len, part)) <= CHARACTERS for part in parts)
    assert [len(part) for part in duplicates._chunks(["a"] * 2_500)] == [1_000, 1_000, 500]
    assert duplicates._chunks([]) == []


def test_rows_and_corrections_that_come_during_a_comparison_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(name: str, *texts: str) -> IndexPlan:
        rows = [{"id": f"{name}{i}", "input": text, "output": f"{i}"} for i, text in enumerate(texts)]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return IndexPlan(paths=(str(tmp_path / name),))

    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, put("a.jsonl", "Where is the parcel?", "Where is the parcel?", "Which card is mine?"))
    meanwhile = [
        lambda: index_pool(workspace, put("b.jsonl", "Which card is mine?")),
        lambda: relabel(workspace, {"a.jsonl1": "0"}, new=True),
    ]

    def comparing(*given: Any) -> list[Repeat]:
        found = find_repeats(*given)
        if meanwhile:
            meanwhile.pop(0)()
        return found

    monkeypatch.setattr(duplicates, "find_repeats", comparing)
    report = index_pool(workspace, put("c.jsonl", "How do I open an account?"))
    assert report.duplicates == {"conflict": 1, "exact": 1} and not meanwhile


def test_rows_that_come_before_their_hashes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["Where is the parcel?", "Which card is mine?", "Where is the parcel?"]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"input": text, "output": "x"}), encoding="utf-8")
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=(str(tmp_path / "0.jsonl"),)))
    rest = [IndexPlan(paths=(str(tmp_path / f"{number}.jsonl"),)) for number in (2, 1)]
    stored = duplicates.stored_hashes

    def hashed(*given: Any, **named: Any) -> StoredHashes:
        hashes = stored(*given, **named)
        if rest:
            index_pool(workspace, rest.pop())
        return hashes

    monkeypatch.setattr(duplicates, "stored_hashes", hashed)
    assert index_pool(workspace, rest.pop(0)).duplicates == {"exact": 1}
