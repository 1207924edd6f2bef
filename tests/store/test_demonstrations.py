"""Reading rows back: every filter and page against a filter in plain Python, lookups against the rows written."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store import demonstrations
from icl_curate.engine.store.browse import Filter, page
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.demonstrations import (
    GOES_ON,
    MOST_HELD,
    Texts,
    fetch,
    find,
    groups,
    input_blocks,
    inputs,
    keys_of,
    queries,
    retire,
    rows_of_inputs,
    task_of,
)
from icl_curate.engine.store.workspace import Workspace

WORDS = ("Refund", "parcel", "50%", "under_score", "Großes", "back\\slash", "O'Brien", "\u202eturned", "émigré")
COUNT = 300


@dataclass(frozen=True)
class Row:
    """What was written of one row, and what was decided about it."""

    row: int
    id: str
    input: str
    output: str
    options: list[str]
    answers: list[str]
    context: str
    source: str
    split: str
    retired: bool
    pruned: bool
    of: int


def _made() -> list[Row]:
    draw = random.Random(4)
    splits = ["pool"] * 6 + ["validation", "test"]
    rows: list[Row] = []
    for number in range(COUNT):
        twin = draw.choice(rows) if rows and draw.random() < 0.15 else None
        source, split, retired = f"s{draw.randrange(4)}", draw.choice(splits), draw.random() < 0.1
        rows.append(
            Row(
                row=number,
                id=f"d{number}",
                input=twin.input if twin else " ".join(draw.choices(WORDS, k=3)) + f" {number}",
                output=draw.choice(WORDS),
                options=draw.sample(WORDS, draw.choice([0, 3])),
                answers=draw.sample(WORDS, draw.choice([0, 2])),
                context=draw.choice(["", "one passage\n\nanother"]),
                source=source,
                split=split,
                retired=retired,
                pruned=split == "pool" and not retired and (source == "s3" or number % 11 == 0),
                of=twin.of if twin else number,
            )
        )
    return rows


ROWS = _made()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = Workspace.create(tmp_path_factory.mktemp("rows") / "w")
    with workspace.write() as con:
        con.executemany(
            "INSERT INTO demonstrations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, md5(?)::BLOB, 'f', 1, now()::TIMESTAMP,"
            " CASE WHEN ? THEN now()::TIMESTAMP END, NULL)",
            [
                [r.row, r.id, r.input, r.output, r.options, r.answers, r.context, r.source, r.split,
                 '{"lang": "de"}' if r.row % 2 else "{}", r.id, r.retired]
                for r in random.Random(1).sample(ROWS, COUNT)
            ],
        )  # fmt: skip
        con.executemany(
            "INSERT INTO duplicates VALUES (?, ?, 'conflict', 1.0, ?)",
            [[r.row, r.of, r.of] for r in ROWS if r.of != r.row],
        )
    decide(workspace, "prune", "source", ["s3"])
    single = [r.id for r in ROWS if r.split == "pool" and not r.retired and r.row % 11 == 0]
    decide(workspace, "prune", "demonstration", single)
    return workspace


def _passes(row: Row, wanted: Filter) -> bool:
    sought = wanted.search.lower()
    return (
        row.split == wanted.split
        and not row.retired
        and wanted.source in (None, row.source)
        and wanted.pruned in (None, row.pruned)
        and (sought in row.input.lower() or sought in row.output.lower() or _named(row, sought))
        and (not wanted.duplicates or row.of != row.row)
    )


def _named(row: Row, sought: str) -> bool:
    """By its id, or from three letters on by how it begins."""
    return row.id.lower().startswith(sought) if len(sought) > 2 else row.id == sought


def _listed(row: Row) -> tuple[Any, ...]:
    of = None if row.of == row.row else row.of
    return row.row, row.id, row.source, row.input, row.output, row.pruned, of


FILTERS = st.builds(
    Filter,
    source=st.sampled_from([None, "s0", "s1", "s3", "none such"]),
    split=st.sampled_from(["pool", "pool", "validation", "test"]),
    pruned=st.sampled_from([None, True, False]),
    search=st.sampled_from(
        [
            "",
            "refund",
            "PARCEL",
            "%",
            "_",
            "\\",
            "'",
            "grosses",
            "GROSSES",
            "Émi",
            "d1",
            "d12",
            "D12",
            "1",
            "\u202e",
            "zzz",
        ]
    ),
    duplicates=st.booleans(),
)


@settings(max_examples=25, deadline=None)
@given(wanted=FILTERS, limit=st.integers(15, 80))
def test_pages_put_together_are_the_filter_in_plain_python(store: Workspace, wanted: Filter, limit: int) -> None:
    expected = [_listed(row) for row in ROWS if _passes(row, wanted)]
    seen: list[tuple[Any, ...]] = []
    after = -1
    while found := page(store, wanted, after, limit):
        assert len(found) <= limit
        seen += [(r.row, r.id, r.source, r.input, r.output, r.pruned, r.duplicate_of) for r in found]
        after = found[-1].row
    assert seen == expected


def test_a_page_starts_after_any_number_met_or_not(store: Workspace) -> None:
    wanted = [row.row for row in ROWS if _passes(row, Filter())]
    for after in (-1, 0, wanted[3], wanted[3] + 1, wanted[-1], COUNT + 10):
        assert [r.row for r in page(store, after=after, limit=5)] == [row for row in wanted if row > after][:5]


def test_a_row_is_found_by_its_id_unless_it_is_retired(store: Workspace) -> None:
    kept = next(row for row in ROWS if not row.retired and row.options and row.answers and row.row % 2)
    found = find(store, kept.id)
    assert (found.row, found.id, found.input, found.output, found.source, found.context) == (
        kept.row, kept.id, kept.input, kept.output, kept.source, kept.context,
    )  # fmt: skip
    assert (found.options, found.answers, found.metadata) == (
        tuple(kept.options),
        tuple(kept.answers),
        {"lang": "de"},
    )
    gone = next(row for row in ROWS if row.retired)
    for name in (gone.id, "none such", "D1", "' OR 1 = 1 --"):
        with pytest.raises(UsageError, match="no row with id"):
            find(store, name)


@pytest.mark.parametrize("count", [0, 1, 7, 200, 201, 290])  # 200 is where one way of looking up gives way to another
def test_rows_come_in_the_order_they_are_asked_for(store: Workspace, count: int) -> None:
    draw = random.Random(count)
    asked = draw.sample(range(COUNT), count)
    asked += asked[:3]  # a row asked for twice comes twice
    assert [(d.row, d.input, d.source) for d in fetch(store, asked)] == [
        (row, ROWS[row].input, ROWS[row].source) for row in asked
    ]
    assert inputs(store, asked) == [ROWS[row].input for row in asked]
    unknown = [COUNT + 5, *asked, -7]
    assert [d.row for d in fetch(store, unknown)] == asked
    with pytest.raises(KeyError):
        inputs(store, unknown)


@pytest.mark.parametrize("characters", [1, 90, 1 << 24])
def test_blocks_of_inputs_are_the_inputs_in_turn(store: Workspace, characters: int) -> None:
    rows = np.array([row.row for row in ROWS if row.row % 3], np.int64)
    blocks = [*input_blocks(store, rows, characters)]
    assert np.concatenate([found for found, _ in blocks]).tolist() == rows.tolist()
    assert [text for _, texts in blocks for text in texts] == [ROWS[row].input for row in rows.tolist()]
    most = max(map(len, (row.input for row in ROWS)))
    assert all(sum(map(len, texts)) <= characters + most for _, texts in blocks)
    assert (len(blocks) == 1) == (characters == 1 << 24)
    shuffled = rows[::-1].copy()
    assert [text for _, texts in input_blocks(store, shuffled, 90) for text in texts] == inputs(store, shuffled)
    for unknown in (COUNT, -1):
        with pytest.raises(KeyError):
            next(input_blocks(store, np.array([0, unknown])))
    assert [*input_blocks(store, rows[:0])] == []


def test_an_input_leads_to_the_first_row_that_has_it(store: Workspace) -> None:
    texts = [row.input for row in ROWS] + ["", "none such", ROWS[0].input.upper(), ROWS[5].input + " "]
    wanted = [next((row.row for row in ROWS if row.input == text), -1) for text in texts]
    assert len(set(wanted)) < len(wanted)  # some inputs repeat
    order = random.Random(2).sample(range(len(texts)), len(texts))
    rows, keys = rows_of_inputs(store, [texts[i] for i in order])
    assert rows.tolist() == [wanted[i] for i in order]
    assert keys.tolist() == keys_of(store, rows).tolist()
    assert [found.tolist() for found in rows_of_inputs(store, [])] == [[], []]


def test_groups_name_the_first_row_of_each(store: Workspace) -> None:
    assert groups(store).tolist() == [row.of for row in ROWS]


@pytest.mark.parametrize(("split", "limit"), list(itertools.product(["validation", "test"], [None, 0, 3, 10_000])))
def test_queries_stand_in_their_order_with_every_accepted_answer(store: Workspace, split: Any, limit: Any) -> None:
    expected = [row for row in ROWS if row.split == split and not row.retired][:limit]
    found = queries(store, split, limit)
    assert [(q.row, q.id, q.input, q.options, q.context) for q in found] == [
        (r.row, r.id, r.input, tuple(r.options), r.context) for r in expected
    ]
    for query, row in zip(found, expected, strict=True):
        assert query.answers[0] == row.output  # the reference first, none of them twice
        assert sorted(query.answers) == sorted({row.output, *row.answers})


def test_a_workspace_without_rows_answers_everything(tmp_path: Path) -> None:
    empty = Workspace.create(tmp_path / "w")
    assert (page(empty), fetch(empty, [1, 2]), queries(empty, "test")) == ([], [], [])
    assert (groups(empty).tolist(), [found.tolist() for found in rows_of_inputs(empty, ["q"])]) == ([], [[-1], [0]])


def test_a_retired_row_keeps_its_number_and_leaves_the_pages(tmp_path: Path) -> None:
    own = Workspace.create(tmp_path / "w")
    with own.write() as con:
        for number in range(4):
            con.execute(
                "INSERT INTO demonstrations VALUES (?, ?, 'q', 'a', [], [], '', 's', 'pool', '{}', 'h', 'f', 1,"
                " now()::TIMESTAMP, NULL, NULL)",
                [number, f"d{number}"],
            )
        retire(con, np.array([1, 3], np.int64))
    assert [r.row for r in page(own)] == [0, 2]
    assert [d.row for d in fetch(own, [3, 0])] == [3, 0]
    assert groups(own).tolist() == [0, 1, 2, 3]


def test_answers_are_one_line_once_the_longer_ones_are_gone(tmp_path: Path) -> None:
    rows = [{"id": f"{i}", "input": f"question {i}", "output": f"out {i * 31}"} for i in range(30)]
    for more, one_line in (([{"id": "poem", "input": "a poem", "output": "a\nb"}], False), ([], True)):
        (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows + more), encoding="utf-8")
        store = Workspace.create(tmp_path / "w")
        index_pool(store, IndexPlan(paths=(str(tmp_path / "pool.jsonl"),)))
        assert task_of(store).one_line == one_line


def test_texts_of_a_process_that_goes_on_are_those_of_the_file(store: Workspace) -> None:
    active = [row.row for row in ROWS if row.split == "pool" and not row.retired and not row.pruned]
    others = [row.row for row in ROWS if row.row not in set(active)]
    draw = random.Random(1)
    texts = Texts(store, len(active))
    for read in range(3 * GOES_ON):  # one by one from the file, then from memory, those not held from the file
        asked = [*draw.sample(active, 4), *draw.sample(others, read % 3)]
        found = texts.of(asked)
        assert [found[row] for row in asked] == fetch(store, asked)
    assert texts._held is not None
    assert not {COUNT + 7, -1} & texts.of([COUNT + 7, -1, active[-1]]).keys()


def test_long_texts_are_not_all_held(store: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = max(len(row.input) + len(row.output) + len(row.context) for row in ROWS)
    monkeypatch.setattr(demonstrations, "MOST_BYTES", 5 * longest)
    monkeypatch.setattr(demonstrations, "MOST_CHARACTERS", 5 * longest)
    texts = Texts(store, COUNT)
    for row in range(3 * GOES_ON):
        found = texts.of([row])
        assert found[row] == fetch(store, [row])[0]
        assert sum(len(each.input) + len(each.output) + len(each.context) for each in found.values()) <= 6 * longest
    assert texts._held is None


def test_texts_of_a_large_pool_are_not_all_held(store: Workspace) -> None:
    texts = Texts(store, MOST_HELD + 1)
    for row in range(3 * GOES_ON):
        assert texts.of([row])[row] == fetch(store, [row])[0]
    assert texts._held is None
