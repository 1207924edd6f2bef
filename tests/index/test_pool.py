"""Indexing as a whole: what is stored, what a second run changes, and that no fault harms the workspace."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from factories.commands import Run
from factories.killing import begun, kill
from factories.patience import PATIENCE
from icl_curate.engine.base.errors import Cancelled, UsageError
from icl_curate.engine.base.progress import CancelToken, Monitor
from icl_curate.engine.export.diff import diff, entries_of_file, entries_of_pool
from icl_curate.engine.index.build import IndexPlan, add_demonstration, dry_run_index, index_pool
from icl_curate.engine.index.results import IndexReport
from icl_curate.engine.index.staging import COLUMNS
from icl_curate.engine.retrieval import artefacts
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.retrieval.weights import DEFAULT_ENCODER
from icl_curate.engine.store import locks
from icl_curate.engine.store.decisions import decide, history, redo, relabel, undo
from icl_curate.engine.store.demonstrations import (
    active_rows,
    fetch,
    find,
    groups,
    queries,
    task_of,
    workspace_fingerprint,
)
from icl_curate.engine.store.overview import overview
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

WORDS = [first + last for first in "bdfgklmnprstvz" for last in ("al", "or", "in", "et", "un", "ash", "ield", "omp")]


def sentence(draw: random.Random, n: int = 9) -> str:
    return " ".join(draw.choices(WORDS, k=n))


def made(n: int, seed: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [{"id": f"{seed}-{i}", "input": sentence(draw), "output": sentence(draw, 3)} for i in range(n)]


def put(path: Path, rows: list[Any]) -> str:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def store(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "w")


def run(store: Workspace, *paths: str, **plan: Any) -> IndexReport:
    return index_pool(store, IndexPlan(paths=paths, **plan))


def state(store: Workspace) -> list[tuple[Any, ...]]:
    with store.read() as con:
        return (
            con.execute(
                "SELECT row, id, input, output, split, file, line, retired_at IS NULL FROM demonstrations ORDER BY row"
            ).fetchall()
            + con.execute("SELECT * EXCLUDE indexed_at FROM files ORDER BY path").fetchall()
        )


def test_a_pool_with_its_queries(store: Workspace, tmp_path: Path) -> None:
    pool, validation, test = made(30), made(5, 1), made(4, 2)
    report = run(
        store,
        put(tmp_path / "crowd.jsonl", pool),
        validation=(put(tmp_path / "v.jsonl", validation),),
        test=(put(tmp_path / "t.jsonl", test),),
    )
    assert (report.demonstrations, report.sources, report.validation, report.test) == (30, 1, 5, 4)
    stored = fetch(store, active_rows(store))
    assert [(d.id, d.input, d.output, d.source) for d in stored] == [
        (r["id"], r["input"], r["output"], "crowd") for r in pool
    ]
    assert [(q.id, q.answers) for q in queries(store, "validation")] == [(r["id"], (r["output"],)) for r in validation]
    assert len(queries(store, "test", 3)) == 3
    assert task_of(store).kind == report.task == "open"


def test_an_unchanged_file_is_not_read_again_and_its_bad_rows_are_told_again(store: Workspace, tmp_path: Path) -> None:
    path = put(tmp_path / "p.jsonl", [*made(20), "broken", {"input": "no output"}])
    first = run(store, path)
    before = state(store)
    tasks: list[str] = []
    again = index_pool(store, IndexPlan(paths=(path,)), Monitor(lambda event: tasks.append(event.task)))
    assert again.unchanged_files == 1
    assert "read" not in tasks
    assert again.skipped == first.skipped
    assert [(s.file, s.line) for s in again.skipped] == [("p.jsonl", 21), ("p.jsonl", 22)]
    assert state(store) == before


def test_what_a_killed_run_staged_goes_with_the_next_run(store: Workspace, tmp_path: Path) -> None:
    pool = put(tmp_path / "pool.jsonl", made(5))
    run(store, pool)
    left = store.path / "tmp" / "staged" / "00000007.parquet"
    left.parent.mkdir()
    left.write_bytes(b"half a file")
    assert run(store, pool).unchanged_files == 1
    assert not left.parent.exists()
    left.parent.mkdir()
    left.write_bytes(b"half a file")
    put(Path(pool), made(6))
    assert run(store, pool).added == 1  # nothing of it is read


def test_staging_takes_the_folders_of_the_workspace_for_names_alone(tmp_path: Path) -> None:
    store = Workspace.create(tmp_path / "split=test" / "a[1]*'s" / "w")
    run(store, put(tmp_path / "pool.jsonl", made(5)))
    with store.read() as con:
        assert con.execute("SELECT DISTINCT split FROM demonstrations").fetchall() == [("pool",)]


def test_rows_change_retire_and_come_back_without_changing_their_number(store: Workspace, tmp_path: Path) -> None:
    rows = made(10)
    path = put(tmp_path / "p.jsonl", rows)
    run(store, path)
    changed = [*rows[:3], rows[3] | {"output": "other"}, *rows[5:], {"id": "new", "input": "n", "output": "m"}]
    put(tmp_path / "p.jsonl", changed)
    report = run(store, path)
    assert (report.added, report.retired, report.revived) == (2, 2, 0)
    assert find(store, "0-3").row >= 10
    with pytest.raises(UsageError, match="0-4"):
        find(store, "0-4")
    assert [d.id for d in fetch(store, [4])] == ["0-4"]  # retired, not lost
    put(tmp_path / "p.jsonl", rows)
    report = run(store, path)
    assert (report.added, report.retired, report.revived) == (0, 2, 2)
    assert active_rows(store).tolist() == list(range(10))
    with store.read() as con:
        lines = con.execute("SELECT line FROM demonstrations WHERE retired_at IS NULL ORDER BY row").fetchall()
    assert [line for (line,) in lines] == list(range(1, 11))


def test_any_history_ends_where_a_fresh_index_ends(tmp_path: Path) -> None:
    draw = random.Random(5)
    universe = made(40) + [{"input": f"unnamed {i % 7}", "output": "x"} for i in range(14)]
    history = Workspace.create(tmp_path / "h")
    for step in range(6):
        for name in ("a", "b"):
            rows = draw.sample(universe[:20] if name == "a" else universe[20:], draw.randint(1, 20))
            put(
                tmp_path / f"{name}.jsonl",
                [r | ({"output": str(draw.randint(0, 1))} if "id" in r else {}) for r in rows],
            )
        paths = (str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"))
        run(history, *paths)
        fresh = Workspace.create(tmp_path / f"f{step}")
        run(fresh, *paths)
        contents = []
        for store in (history, fresh):
            with store.read() as con:
                contents.append(
                    con.execute(
                        "SELECT id, input, output, source, split, file, line, hash FROM demonstrations"
                        " WHERE retired_at IS NULL ORDER BY file, line"
                    ).fetchall()
                )
        assert contents[0] == contents[1]
        with history.read() as con:
            numbers = [row for (row,) in con.execute("SELECT row FROM demonstrations ORDER BY row").fetchall()]
        assert numbers == list(range(len(numbers)))


def test_a_dry_run_tells_what_the_run_then_does_and_changes_nothing(tmp_path: Path) -> None:
    draw = random.Random(6)
    universe = made(30)
    path = tmp_path / "w"
    for step in range(6):
        rows: list[Any] = [row | {"output": f"o{draw.randint(0, 1)}"} for row in draw.sample(universe, 12)]
        rows += [rows[0], "{rotten"] if step % 2 else []
        pool = put(tmp_path / "pool.jsonl", rows)
        asked = put(tmp_path / f"queries{step}.jsonl", made(3, 100 + step))
        encoder = "all-MiniLM-L6-v2" if step in (0, 5) else None  # in between texts gather that have no vector
        plan = IndexPlan(paths=(pool,), validation=(asked,), validation_fraction=0.2, encoder=encoder)
        before = state(Workspace.open(path)) if path.exists() else None
        told = dry_run_index(path, plan)
        assert (state(Workspace.open(path)) if path.exists() else None) == before
        done = index_pool(Workspace.create(path), plan)
        assert done.duplicates is not None
        found = replace(done, duplicates=None, leaking=None, skipped=(), dry_run=True)
        assert replace(told, skipped=()) == found
        assert [(Path(s.file).name, s.line) for s in told.skipped] == [(s.file, s.line) for s in done.skipped]
        again = dry_run_index(path, plan)
        assert (again.added, again.retired, again.revived, again.encoded, again.unchanged_files) == (0, 0, 0, 0, 2)


def test_a_dry_run_of_bad_files_raises_what_the_run_would(tmp_path: Path) -> None:
    bad = put(tmp_path / "bad.jsonl", ['{"input": "no output"}'])
    for plan in (IndexPlan(paths=(bad,)), IndexPlan(), IndexPlan(paths=(str(tmp_path / "none.jsonl"),))):
        with pytest.raises(UsageError):
            dry_run_index(tmp_path / "w", plan)
    assert not (tmp_path / "w").exists()


def test_files_not_named_stay_as_they_are(store: Workspace, tmp_path: Path) -> None:
    a, b = put(tmp_path / "a.jsonl", made(5)), put(tmp_path / "b.jsonl", made(5, 1))
    run(store, a)
    run(store, b)
    put(tmp_path / "a.jsonl", made(3))
    assert run(store, b).retired == 0
    assert len(active_rows(store)) == 10
    assert run(store).retired == 2  # no path: every known file again


def test_who_needs_vectors_waits_for_those_that_a_run_is_about_to_encode(
    store: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(store, put(tmp_path / "few.jsonl", made(5)), encoder=DEFAULT_ENCODER)
    waiting, seen = Event(), list[int | Exception]()
    encode = artefacts.encode

    def need() -> None:
        try:
            seen.append(int(PoolView(Workspace.open(store.path), Settings()).nearest.rows.size))
        except Exception as error:  # the test tells what it was
            seen.append(error)
        waiting.set()

    def encode_while_needed(*parts: Any, **named: Any) -> int:
        reader.start()
        assert waiting.wait(PATIENCE)
        return encode(*parts, **named)

    reader = Thread(target=need)
    monkeypatch.setattr(locks, "on_wait", lambda what, waited: waiting.set())
    monkeypatch.setattr(artefacts, "encode", encode_while_needed)
    run(store, put(tmp_path / "more.jsonl", made(20, 1)), encoder=DEFAULT_ENCODER)
    reader.join(PATIENCE)
    assert seen == [25]


def test_who_needs_vectors_that_nobody_encodes_is_told(store: Workspace, tmp_path: Path) -> None:
    run(store, put(tmp_path / "few.jsonl", made(5)), encoder=DEFAULT_ENCODER)
    run(store, put(tmp_path / "more.jsonl", made(20, 1)))
    with pytest.raises(UsageError, match="20 demonstrations have no vectors"):
        PoolView(store, Settings()).nearest  # noqa: B018


def test_a_file_by_two_paths_is_one_and_the_last_argument_says_what_it_is(store: Workspace, tmp_path: Path) -> None:
    a, b = put(tmp_path / "a.jsonl", made(4)), put(tmp_path / "b.jsonl", made(3, 1))
    (tmp_path / "link.jsonl").symlink_to(b)
    (tmp_path / "sub").mkdir()
    report = run(store, a, b, f"{tmp_path}/sub/../a.jsonl", validation=(str(tmp_path / "link.jsonl"),))
    assert (report.demonstrations, report.validation, report.skipped, report.leaking) == (4, 3, (), ())


def test_an_id_names_one_row(store: Workspace, tmp_path: Path) -> None:
    a = put(tmp_path / "a.jsonl", [*made(3), made(1)[0] | {"output": "again"}])
    b = put(tmp_path / "b.jsonl", made(2))
    report = run(store, a, b)
    assert [(s.file, s.line) for s in report.skipped] == [("a.jsonl", 4), ("b.jsonl", 1), ("b.jsonl", 2)]
    assert all("is taken by a.jsonl:" in s.reason for s in report.skipped)
    assert len(active_rows(store)) == 3


def test_an_id_is_free_when_its_row_is_gone(store: Workspace, tmp_path: Path) -> None:
    first, *others = made(3)
    taken = first | {"output": "another row"}
    a, b = put(tmp_path / "a.jsonl", [first, others[0]]), put(tmp_path / "b.jsonl", [taken, others[1]])
    assert len(run(store, a, b).skipped) == 1
    put(tmp_path / "a.jsonl", others[:1])
    assert (run(store).skipped, find(store, "0-0").output) == ((), "another row")
    put(tmp_path / "a.jsonl", [first, others[0]])
    assert [(s.file, s.line) for s in run(store).skipped] == [("a.jsonl", 1)], "now b has it"
    assert run(store).unchanged_files == 2, "while it is taken, nothing is read again"
    put(tmp_path / "b.jsonl", others[1:])
    assert run(store, b).demonstrations == 2
    assert (run(store).skipped, find(store, "0-0").output) == ((), first["output"]), "found by a later run, too"
    put(tmp_path / "b.jsonl", [taken, others[1]])
    run(store)
    done = run(store, drop=("a.jsonl",))
    assert (done.skipped, done.demonstrations, find(store, "0-0").output) == ((), 2, "another row")


def test_an_id_stays_with_its_file_when_that_is_read_again_after_another(store: Workspace, tmp_path: Path) -> None:
    first, other, further = made(3)
    owner = put(tmp_path / "z.jsonl", [first, other])
    run(store, owner, source="s")
    put(tmp_path / "a.jsonl", [first | {"output": "another row"}, further])
    run(store, str(tmp_path / "a.jsonl"), source="s")
    relabel(store, {"0-0": "corrected"})
    put(tmp_path / "z.jsonl", [first, other, *made(1, 1)])
    done = run(store)
    assert [(s.file, s.line) for s in done.skipped] == [("a.jsonl", 1)] and not done.warnings
    assert (find(store, "0-0").output, done.retired, done.demonstrations) == ("corrected", 0, 4)

    for name, drop in (("z2.jsonl", ("z.jsonl",)), ("z3.jsonl", ())):  # with another name, too
        owner = str(Path(owner).rename(tmp_path / name))
        done = run(store, str(tmp_path / "a.jsonl"), owner, source="s", drop=drop)
        assert (find(store, "0-0").output, done.retired, done.demonstrations) == ("corrected", 0, 4)
        assert [(s.file, s.line) for s in done.skipped] == [("a.jsonl", 1)]


def test_a_file_that_is_dropped_has_no_ids_in_the_same_run(store: Workspace, tmp_path: Path) -> None:
    a, b = put(tmp_path / "a.jsonl", made(1)), put(tmp_path / "b.jsonl", made(2)[1:])
    run(store, a, b)
    put(tmp_path / "b.jsonl", [made(1)[0] | {"output": "better"}, *made(2)[1:]])
    done = run(store, b, drop=("a.jsonl",))
    assert (done.skipped, done.demonstrations, find(store, "0-0").output) == ((), 2, "better")


def test_the_last_word_of_each_stage_is_that_it_is_done(store: Workspace, tmp_path: Path) -> None:
    paths = [put(tmp_path / f"{name}.jsonl", [*made(8, seed), made(2)[0]]) for seed, name in enumerate("abc")]
    said: dict[str, Event] = {}
    index_pool(store, IndexPlan(paths=tuple(paths)), Monitor(lambda event: said.update({event.task: event})))
    assert said.pop(COLUMNS).note  # of no stage: what was read
    assert said["read"].done == 27 and "duplicates" in said
    assert {event.task: event.total for event in said.values()} == {event.task: event.done for event in said.values()}


def test_a_query_that_stands_in_the_pool_is_a_leak_and_no_repeat(store: Workspace, tmp_path: Path) -> None:
    same, other = {"input": "the same thing", "output": "x"}, {"input": "quite another matter", "output": "y"}
    queries = put(tmp_path / "q.jsonl", [same, other])
    pool = put(tmp_path / "p.jsonl", [same, same, *made(3)])
    report = run(store, pool, validation=[queries])
    assert report.duplicates == {"exact": 1} == overview(store).duplicates
    assert len(report.leaking) == 1
    late = put(tmp_path / "late.jsonl", [other | {"id": "a"}, other | {"id": "b"}])  # its group begins with the query
    assert run(store, late).duplicates == {"exact": 2} == overview(store).duplicates


def test_exact_repeats_without_an_id_are_kept_and_told(store: Workspace, tmp_path: Path) -> None:
    row = {"input": "the same thing", "output": "x"}
    path = put(tmp_path / "p.jsonl", [row, row, row, {"input": "the same  THING", "output": "y"}])
    report = run(store, path)
    ids = [d.id for d in fetch(store, active_rows(store))]
    assert ids[1:3] == [ids[0] + "~2", ids[0] + "~3"]
    assert report.duplicates == {"exact": 2, "conflict": 1}
    assert groups(store).tolist() == [0, 0, 0, 0]
    assert run(store, path).added == 0


def test_equal_rows_of_two_files_stay_when_one_file_changes(store: Workspace, tmp_path: Path) -> None:
    same, more = ({"input": text, "output": "x", "source": "s"} for text in ("the same thing", "more"))
    a, b = put(tmp_path / "a.jsonl", [same, same]), put(tmp_path / "b.jsonl", [same, same])
    run(store, a, b)
    first, *others = ids = [d.id for d in fetch(store, active_rows(store))]
    assert others == [f"{first}~{n}" for n in (2, 3, 4)]
    put(tmp_path / "b.jsonl", [more, same, same])
    report = run(store)
    assert (report.added, report.retired, report.skipped) == (1, 0, ())
    put(tmp_path / "a.jsonl", [same])
    assert run(store).retired == 1
    put(tmp_path / "b.jsonl", [same, same, same])
    report = run(store)
    assert (report.added, report.retired, report.revived) == (0, 1, 1), (
        "the number that is free is that of a row before"
    )
    assert sorted(d.id for d in fetch(store, active_rows(store))) == ids
    Path(a).rename(tmp_path / "c.jsonl")
    report = run(store, str(tmp_path / "c.jsonl"))
    assert (report.added, report.retired, report.skipped) == (0, 0, ()), "a new name of a file changes no row"
    assert sorted(d.id for d in fetch(store, active_rows(store))) == ids


def test_decisions_on_rows_without_ids_stay_when_a_column_comes_or_the_file_has_another_name(
    store: Workspace, tmp_path: Path
) -> None:
    rows, names = made(5), ("may", "may", "june", "july")
    path = put(tmp_path / "may.jsonl", rows)
    run(store, path)
    pruned, corrected, *others = ids = [row.id for row in fetch(store, active_rows(store))]
    decide(store, "prune", "demonstration", [pruned])
    relabel(store, {corrected: "other"}, new=True)
    for i, more in enumerate(({"date": "may"}, {"date": "june"}, {}, {"date": "july", "source": "desk"})):
        before = Path(path).name
        path = str(Path(path).rename(tmp_path / f"{names[i]}.jsonl"))
        put(Path(path), [{"input": f"new {i}", "output": "x"}, *({**row, **more} for row in rows)])
        report = run(store, path, drop=() if before == Path(path).name else (before,))
        kept = {row.id: row.output for row in fetch(store, active_rows(store)) if row.id in ids}
        assert sorted(kept) == sorted([corrected, *others]) and kept[corrected] == "other"
        assert (report.demonstrations, report.warnings) == (6, ())
        told = diff(entries_of_file(path), entries_of_pool(store))
        changed = [(row.before, row.after) for row in told.rows if row.change == "changed"]
        assert (told.added, told.removed, changed) == (0, 1, [(rows[1]["output"], "other")]), (
            "the pruned one is removed"
        )


@pytest.mark.parametrize("seed", range(6))
def test_of_a_text_without_id_as_many_ids_stay_as_rows_do(store: Workspace, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    held: dict[str, dict[str, list[str]]] = {name: {} for name in "ab"}
    for _ in range(6):
        name = draw.choice("ab")
        texts = [draw.choice("xyz") for _ in range(draw.randint(1, 6))]
        rows = [{"input": text, "output": "o", "more": draw.choice(["", "m"])} for text in texts]
        run(store, put(tmp_path / f"{name}.jsonl", rows))
        with store.read() as con:
            found = con.execute("SELECT file, input, id FROM demonstrations WHERE retired_at IS NULL").fetchall()
        now = {
            each: {text: [i for f, t, i in found if (f, t) == (f"{each}.jsonl", text)] for text in "xyz"}
            for each in "ab"
        }
        assert {text: len(ids) for text, ids in now[name].items()} == {text: texts.count(text) for text in "xyz"}
        for each, before in held.items():
            for text, ids in before.items():
                stay = min(len(ids), len(now[each][text]))
                assert len({*ids} & {*now[each][text]}) == stay, (each, text)
        assert len({i for _, _, i in found}) == len(found)
        held = now


@pytest.mark.parametrize("fraction", [0.1, 0.3])
def test_a_split_by_hash_is_near_its_share_and_stable(tmp_path: Path, fraction: float) -> None:
    rows = made(3000)
    placed = []
    for n in (1000, 3000):
        store = Workspace.create(tmp_path / f"w{n}")
        path = put(tmp_path / f"p{n}.jsonl", [r | {"source": "s"} for r in rows[:n]])
        run(store, path, validation_fraction=fraction, test_fraction=0.2)
        with store.read() as con:
            placed.append(dict(con.execute("SELECT id, split FROM demonstrations").fetchall()))
        share = sum(split == "validation" for split in placed[-1].values()) / n
        assert abs(share - fraction) < 5 * (fraction * (1 - fraction) / n) ** 0.5
    assert placed[0].items() <= placed[1].items()


def test_repeats_fall_into_one_split(store: Workspace, tmp_path: Path) -> None:
    rows = made(200)
    copies = [{"input": row["input"].upper() + " ", "output": "x"} for row in rows]
    run(store, put(tmp_path / "p.jsonl", rows + copies), validation_fraction=0.5)
    with store.read() as con:
        split = dict(con.execute("SELECT line, split FROM demonstrations").fetchall())
    assert all(split[i] == split[i + 200] for i in range(1, 201))
    assert set(split.values()) == {"pool", "validation"}


def test_leaks_are_told(store: Workspace, tmp_path: Path) -> None:
    pool = made(50)
    leaked = [
        {"id": "l1", "input": pool[7]["input"], "output": "x"},
        {"id": "l2", "input": pool[9]["input"] + "s", "output": "x"},
    ]
    report = run(
        store, put(tmp_path / "p.jsonl", pool), validation=(put(tmp_path / "v.jsonl", [leaked[0], *made(5, 1)]),),
        test=(put(tmp_path / "t.jsonl", [*made(5, 2), leaked[1]]),),
    )  # fmt: skip
    assert report.leaking == ("l1", "l2")
    assert report.as_json()["leaks"] == 2


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([{"input": f"text {i} of many", "output": f"label_{i % 7}"} for i in range(100)], "labels"),
        ([{"input": f"text {i}", "output": f"label_{i}"} for i in range(100)], "open"),
        ([{"input": f"text {i}", "output": "a" * 90} for i in range(100)], "open"),
        ([{"input": f"text {i}", "output": "ab"[i % 2], "options": ["a", "b"]} for i in range(20)], "options"),
    ],
)
def test_the_task_is_inferred(store: Workspace, tmp_path: Path, rows: list[Any], kind: str) -> None:
    assert run(store, put(tmp_path / "p.jsonl", rows)).task == kind
    task = task_of(store)
    assert task.kind == kind
    assert set(task.labels) == ({row["output"] for row in rows} if kind == "labels" else set())


def test_one_rotten_row_in_a_hundred_stops_nothing(store: Workspace, tmp_path: Path) -> None:
    rot: list[Any] = [
        "{", '{"input": "\\ud800", "output": "x"}', {"input": 5, "output": "x"}, {"input": "a"}, "[]",
        '{"input": "\0"}', {"input": "a", "output": "x", "options": ["y", "z"]}, {"input": "", "output": "x"},
    ]  # fmt: skip
    rows: list[Any] = made(4000)
    places = range(50, 4000, 100)
    for i, place in enumerate(places):
        rows[place] = rot[i % len(rot)]
    path = put(tmp_path / "p.jsonl", rows)
    report = run(store, path)
    assert report.demonstrations == 4000 - len(places)
    assert [s.line for s in report.skipped] == [place + 1 for place in places]
    before = state(store)
    put(tmp_path / "p.jsonl", rows[:100])
    with pytest.raises(UsageError, match=r"1 bad row.*p\.jsonl:51: not JSON"):
        run(store, path, strict=True)
    assert state(store) == before


def test_a_faulty_file_changes_nothing_at_all(store: Workspace, tmp_path: Path) -> None:
    good = put(tmp_path / "a.jsonl", made(5))
    run(store, good)
    before = state(store)
    put(tmp_path / "a.jsonl", made(9))
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    put(tmp_path / "columns.jsonl", [{"foo": "a", "bar": "b"}])
    for wrong in ("empty.jsonl", "cut.parquet", "columns.jsonl", "none.jsonl", "."):
        with pytest.raises(UsageError) as caught:
            run(store, good, str(tmp_path / wrong))
        assert caught.value.fix
        assert state(store) == before
    with pytest.raises(UsageError, match=r"columns\.jsonl.*missing field: input \(foo: a; bar: b\)"):
        run(store, str(tmp_path / "columns.jsonl"))
    assert run(store, str(tmp_path / "columns.jsonl"), columns={"input": "foo", "output": "bar"}).added == 1


@pytest.mark.parametrize("fractions", [(-0.1, 0.0), (0.0, 1.0), (0.6, 0.5)])
def test_fractions_out_of_range_are_refused(store: Workspace, tmp_path: Path, fractions: tuple[float, float]) -> None:
    path = put(tmp_path / "p.jsonl", made(2))
    with pytest.raises(UsageError):
        run(store, path, validation_fraction=fractions[0], test_fraction=fractions[1])


def test_cancelling_changes_nothing_and_the_next_run_does_it_all(store: Workspace, tmp_path: Path) -> None:
    path = put(tmp_path / "p.jsonl", made(50))
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(Cancelled):
        index_pool(store, IndexPlan(paths=(path,)), Monitor(cancel=cancel))
    assert state(store) == []
    assert run(store, path).added == 50


def test_a_kill_at_any_moment_leaves_all_or_nothing(tmp_path: Path) -> None:
    a, b = put(tmp_path / "a.jsonl", made(500)), put(tmp_path / "b.jsonl", made(30_000, 1))
    store = Workspace.create(tmp_path / "w")
    run(store, a)
    seen = set()
    for delay in (0.05, 0.3, 0.6, 0.9, 1.3):
        child = begun(lambda: index_pool(Workspace.open(store.path), IndexPlan(paths=(b,))))
        time.sleep(delay)
        kill(child, over=True)
        seen.add(len(active_rows(store)))
    assert seen <= {500, 30_500}
    report = run(store, b)
    assert report.demonstrations == 30_500
    whole = Workspace.create(tmp_path / "whole")
    run(whole, a)
    fresh = run(whole, b)
    assert fresh.duplicates == report.duplicates
    assert groups(store).tolist() == groups(whole).tolist()
    assert [path.name for path in store.path.rglob("staged*")] == []


def test_few_small_numbers_as_outputs_are_told(tmp_path: Path) -> None:
    """The labels of SNLI and its like: an LLM cannot tell what 2 means."""
    write = {
        "numbers": [{"text": f"t{i}", "label": i % 3} for i in range(9)],
        "sums": [{"text": f"{i} + {i}", "label": 2 * i} for i in range(9)],
        "names": [{"text": f"n{i}", "label": "yes" if i % 2 else "no"} for i in range(9)],
        "choices": [{"question": f"q{i}", "choices": ["0", "1"], "answer": i % 2} for i in range(9)],
    }
    for name, rows in write.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    workspace = Workspace.create(tmp_path / "w")
    paths = tuple(str(tmp_path / f"{name}.jsonl") for name in write)
    (told,) = index_pool(workspace, IndexPlan(paths=paths)).warnings
    assert told.startswith("numbers.jsonl: all outputs are numbers from 0 to 2") and "--labels" in told
    named = IndexPlan(paths=paths[:1], labels=("entailment", "neutral", "contradiction"))
    assert index_pool(workspace, named).warnings == ()
    assert {row.output for row in fetch(workspace, active_rows(workspace))} >= {"entailment", "contradiction"}
    assert index_pool(workspace, IndexPlan()).unchanged_files == 4  # read in the same way again


def test_rows_that_change_their_split_are_seen_by_what_keeps_a_pool_open(tmp_path: Path, run: Run) -> None:
    rows = [json.dumps({"id": f"r{i}", "input": f"some text {i}", "output": "ab"[i % 2]}) for i in range(12)]
    pool, more, at = tmp_path / "pool.jsonl", tmp_path / "more.jsonl", ("--no-encode", "-w", tmp_path / "w")
    pool.write_text("\n".join(rows[:8]))
    more.write_text("\n".join(rows[8:]))
    run("index", pool, "--validation", more, *at)
    workspace = Workspace.open(tmp_path / "w")
    seen = [workspace_fingerprint(workspace)]
    run("index", pool, "--validation", more, *at)
    assert workspace_fingerprint(workspace) == seen[0], "nothing has changed"
    for words in ((pool, more), (pool, "--test", more)):
        run("index", *words, *at)
        seen.append(workspace_fingerprint(workspace))
    assert len({*seen}) == 3


AS_READ = {"columns": {}, "source": None, "split": None, "test_fraction": 0.0, "validation_fraction": 0.0}


@pytest.mark.parametrize(
    "told",
    [
        "[]",
        "soon",
        *(
            json.dumps(AS_READ | odd)
            for odd in ({"of_a_later_version": 1}, {"columns": [1]}, {"query": 5}, {"split": 5})
        ),
    ],
)
def test_a_file_of_which_nobody_knows_how_it_was_read_is_named_again(
    store: Workspace, tmp_path: Path, told: str
) -> None:
    path = put(tmp_path / "p.jsonl", [{"input": "a text", "output": "a"}, {"input": "another", "output": "b"}])
    run(store, path)
    with store.write() as con:
        con.execute("UPDATE files SET reading = ?", [told])
    with pytest.raises(UsageError, match="in an unknown way how") as refused:
        run(store)
    assert refused.value.fix.startswith("name it again: icl-curate index ")
    assert run(store, path).added == 0 and run(store).unchanged_files == 1


def test_options_without_files_are_those_of_the_known_files_from_now_on(store: Workspace, tmp_path: Path) -> None:
    path = put(tmp_path / "p.jsonl", [{"text": f"some text {i}", "label": "ab"[i % 2], "team": "x"} for i in range(60)])
    asked = put(tmp_path / "q.jsonl", [{"text": "another text", "label": "a"}])
    named = {"columns": {"input": "text", "output": "label"}}
    run(store, path, test=(asked,), **named)
    held_out = run(store, validation_fraction=0.3)
    assert held_out.validation == held_out.moved > 5 and (held_out.added, held_out.test) == (0, 1)
    both = run(store, test_fraction=0.3)
    assert both.validation == held_out.validation and both.test == 1 + both.moved > 6
    assert run(store).unchanged_files == 2, "as it was said last"
    assert run(store, columns={"source": "team"}).sources == 1 and fetch(store, active_rows(store))[0].source == "x"
    with pytest.raises(UsageError, match="no file matches"):
        run(store, columns={"other.jsonl::input": "text"})
    assert run(store, source="desk").sources == 1 and fetch(store, active_rows(store))[0].source == "desk"

    as_before = IndexPlan(paths=(path,), source="desk", columns={**named["columns"], "source": "team"})
    released = dry_run_index(store.path, as_before)
    assert released.moved == released.demonstrations - both.demonstrations > 11
    assert any("held-out queries are in the pool now" in warning for warning in released.warnings)
    assert not both.warnings and not held_out.warnings


def test_a_file_with_another_name_keeps_its_rows(tmp_path: Path, store: Workspace) -> None:
    old, asked = put(tmp_path / "old.jsonl", made(6)), put(tmp_path / "asked.jsonl", made(3, 1))
    run(store, old, validation=(asked,), source="desk")
    before = [row.id for row in fetch(store, active_rows(store))]
    new = str(Path(old).rename(tmp_path / "new.jsonl"))
    plan = IndexPlan(paths=(new,), validation=(asked,), drop=("old.jsonl",), source="desk")
    assert dry_run_index(store.path, plan).demonstrations == 6
    done = run(store, new, validation=(asked,), drop=("old.jsonl",), source="desk")
    assert (done.demonstrations, done.skipped, done.added, done.retired) == (6, (), 0, 0)
    assert [row.id for row in fetch(store, active_rows(store))] == before
    assert run(store).retired == 0


def test_a_file_that_is_gone_is_said_and_taken_out_by_name(tmp_path: Path, store: Workspace) -> None:
    kept, gone = put(tmp_path / "kept.jsonl", made(6)), put(tmp_path / "gone.jsonl", made(4, 1))
    run(store, kept, gone, validation_fraction=0.3)
    assert overview(store).next_step == "icl-curate index", "there are no vectors yet"
    run(store, kept, gone, validation_fraction=0.0)
    Path(gone).unlink()
    with pytest.raises(UsageError, match=r"gone\.jsonl is gone") as refused:
        run(store)
    assert refused.value.fix.endswith("icl-curate index --drop gone.jsonl")
    assert "icl-curate index FILE --drop gone.jsonl" in refused.value.fix
    told: list[str] = []
    index_pool(store, IndexPlan(paths=(kept,)), Monitor(lambda event: told.append(event.note)))
    assert any("its rows stay" in note for note in told) and active_rows(store).size == 10
    with pytest.raises(UsageError, match=r"other\.jsonl is not indexed"):
        run(store, drop=("other.jsonl",))

    before = state(store)
    dry = dry_run_index(store.path, IndexPlan(drop=("gone.jsonl",)))
    assert state(store) == before and (dry.retired, dry.demonstrations) == (4, 6)
    done = run(store, drop=(gone,))  # by its path, too
    assert (done.retired, done.demonstrations) == (4, 6) and active_rows(store).size == 6
    assert run(store).retired == 0, "it is known no more"
    with pytest.raises(UsageError, match="the pool would be empty") as empty:
        run(store, drop=(kept,))
    assert "has another name now" in empty.value.fix
    assert run(store, put(tmp_path / "gone.jsonl", made(4, 1))).revived == 4


def test_a_threshold_for_repeats_that_is_too_low_stops_the_index_alone(
    store: Workspace, tmp_path: Path, run: Run
) -> None:
    pool = put(tmp_path / "p.jsonl", made(3))
    index_pool(store, IndexPlan(paths=(pool,)))
    (store.path / "config.toml").write_text("near_duplicate = 0.3\n")
    assert run("status", "-w", store.path).code == 0
    for more in ((), ("--dry-run",)):
        refused = run("index", pool, "-w", store.path, *more)
        assert refused.code == 2 and "near_duplicate is 0.3" in refused.err and "config.toml" in refused.err
    assert run("index", pool, "-w", store.path, "--no-encode", "--near-duplicate", "0.5").code == 0
    with pytest.raises(UsageError, match=r"near_duplicate is 0\.3") as added:
        add_demonstration(store, Settings(near_duplicate=0.3), {"input": "one more", "output": "x"})
    assert "config.toml" in added.value.fix


def test_an_addition_that_was_killed_is_in_the_way_of_no_other(store: Workspace, tmp_path: Path) -> None:
    run(store, put(tmp_path / "p.jsonl", made(3)))
    add_demonstration(store, Settings(), {"id": "first", "input": "one more", "output": "x"})
    with (store.path / "added.jsonl").open("ab") as file:
        file.write(b'{"id": "cut", "input": "cut o')
    add_demonstration(store, Settings(), {"id": "second", "input": "another", "output": "x"})
    assert {find(store, name).output for name in ("first", "second")} == {"x"}
    assert run(store).skipped == () and active_rows(store).size == 5


def test_a_file_in_the_place_of_another_is_read_as_that_was(tmp_path: Path) -> None:
    rows = [{"Frage": f"text {i}", "Thema": "ab"[i % 2], "from": "mail"} for i in range(60)]
    (old := tmp_path / "old.jsonl").write_text("\n".join(map(json.dumps, rows)))
    workspace = Workspace.create(tmp_path / "w")
    columns = {"input": "Frage", "output": "Thema", "source": "from"}
    before = index_pool(workspace, IndexPlan(paths=(str(old),), columns=columns, validation_fraction=0.3))
    new = old.rename(tmp_path / "new.jsonl")
    plan = IndexPlan(paths=(str(new),), drop=("old.jsonl",))
    after = index_pool(workspace, plan)
    assert (after.demonstrations, after.validation) == (before.demonstrations, before.validation)
    assert (after.added, after.retired) == (0, 0) and before.validation > 0


def decided(store: Workspace, pruned: str, corrected: str) -> None:
    decide(store, "prune", "demonstration", [pruned])
    relabel(store, {corrected: "other"}, new=True)


def told_of(store: Workspace) -> tuple[set[str], set[str], list[tuple[str, ...]]]:
    """The pruned inputs, those of corrected rows, and the targets of all decisions."""
    with store.read() as con:
        pruned = con.execute("SELECT input FROM pool WHERE row IN (FROM pruned)").fetchall()
        corrected = con.execute("SELECT input FROM pool WHERE output = 'other'").fetchall()
    return {text for (text,) in pruned}, {text for (text,) in corrected}, [one.targets for one in history(store)]


NAMES: dict[str, Any] = {"none": lambda i: {}, "named": lambda i: {"id": f"a{i}"}, "others": lambda i: {"id": f"b{i}"}}


@pytest.mark.parametrize("after", ["named", "others", "none"])
@pytest.mark.parametrize("before", ["none", "named"])
def test_decisions_stay_with_what_rows_say_when_their_ids_change(
    store: Workspace, tmp_path: Path, before: str, after: str
) -> None:
    rows = [{"input": row["input"], "output": row["output"]} for row in made(6)]
    run(store, put(tmp_path / "a.jsonl", [{**row, **NAMES[before](i)} for i, row in enumerate(rows)]))
    ids = [row.id for row in fetch(store, active_rows(store))]
    decided(store, ids[1], ids[3])
    for names in (after, "none", after):
        report = run(store, put(tmp_path / "a.jsonl", [{**row, **NAMES[names](i)} for i, row in enumerate(rows)]))
        assert told_of(store)[:2] == ({rows[1]["input"]}, {rows[3]["input"]}) and report.warnings == ()
    undo(store)
    undo(store)
    assert told_of(store)[:2] == (set(), set())
    redo(store)
    redo(store)
    assert told_of(store)[:2] == ({rows[1]["input"]}, {rows[3]["input"]})


def test_a_new_row_that_takes_the_decision_on_one_long_gone_is_told(store: Workspace, tmp_path: Path) -> None:
    rows = [{**row, **NAMES["named"](i)} for i, row in enumerate(made(6))]
    run(store, put(tmp_path / "a.jsonl", rows))
    decided(store, "a1", "a3")
    assert "2 rows are gone" in run(store, put(tmp_path / "a.jsonl", [rows[0], *rows[4:]])).warnings[0]
    again = [{**row, "id": f"new{i}"} for i, row in enumerate(rows[:4])]
    report = run(store, put(tmp_path / "a.jsonl", [*again, *rows[4:]]))
    assert report.warnings == (
        "decisions on rows that were gone hold for 2 rows of the same content (new1, new3): icl-curate history",
    )
    assert told_of(store)[:2] == ({rows[1]["input"]}, {rows[3]["input"]})


def test_decisions_go_with_rows_whose_ids_are_places_in_the_file(store: Workspace, tmp_path: Path) -> None:
    rows = made(6)
    path = tmp_path / "a.jsonl"

    def placed(some: list[dict[str, Any]]) -> str:
        return put(path, [{**row, "id": i} for i, row in enumerate(some)])

    run(store, placed(rows))
    decided(store, "1", "2")
    new = made(1, seed=9)
    assert run(store, placed([*new, *rows])).warnings == ()
    assert told_of(store) == ({rows[1]["input"]}, {rows[2]["input"]}, [("3",), ("2",)])
    # row 1 is gone, and what was the third has its id: it was never pruned
    report = run(store, placed([*new, rows[0], *rows[2:]]))
    assert told_of(store)[:2] == (set(), {rows[2]["input"]})
    assert report.warnings == ("1 row is gone from the files, with decisions that apply again when they come back: "
                               "icl-curate history",)  # fmt: skip


def test_a_decision_on_a_retired_row_is_on_no_row_of_the_users_own_id(store: Workspace, tmp_path: Path) -> None:
    rows = made(7)
    path = tmp_path / "a.jsonl"

    def placed(some: list[dict[str, Any]]) -> str:
        return put(path, [{**row, "id": i} for i, row in enumerate(some)])

    run(store, placed(rows[:6]))
    decided(store, "1", "2")
    run(store, placed([rows[0], *rows[2:6]]))
    [(target,), _] = reversed(told_of(store)[2])
    run(store, put(tmp_path / "b.jsonl", [{**rows[6], "id": target}]))
    assert told_of(store)[0] == set(), "it was row 1 that was pruned, which is gone"


def test_what_was_never_decided_on_has_no_decision_by_the_id_of_another(store: Workspace, tmp_path: Path) -> None:
    rows = [{"input": row["input"], "output": row["output"]} for row in made(4)]
    path = tmp_path / "a.jsonl"
    run(store, put(path, [{**row, "id": i} for i, row in enumerate(rows)]))
    decide(store, "prune", "demonstration", ["1"])
    told = run(store, put(path, [{**row, "id": i} for i, row in enumerate([rows[0], *rows[2:]])])).warnings
    assert told_of(store)[0] == set() and len(told) == 1 and told[0].startswith("1 row is gone")
    [again] = run(store, put(path, [{**row, "id": i} for i, row in enumerate(rows)])).warnings
    assert again.startswith("decisions on rows that were gone hold for 1 row of the same content (1): ")
    assert told_of(store)[0] == {rows[1]["input"]}


def test_decisions_on_rows_that_were_gone_are_on_them_again_under_other_ids(store: Workspace, tmp_path: Path) -> None:
    rows = made(4)
    run(store, put(tmp_path / "a.jsonl", rows))
    decided(store, "0-1", "0-2")
    run(store, put(tmp_path / "a.jsonl", [rows[0], rows[3]]))
    run(store, put(tmp_path / "a.jsonl", [rows[0], rows[3], *({**row, "id": row["id"] + "b"} for row in rows[1:3])]))
    assert told_of(store)[:2] == ({rows[1]["input"]}, {rows[2]["input"]})


@pytest.mark.parametrize("named", [True, False])
def test_of_rows_that_say_the_same_each_keeps_its_own_decisions(store: Workspace, tmp_path: Path, named: bool) -> None:
    """One is pruned of those of two sources, of pool and queries, of two in one file."""
    text = {"input": "again and again", "output": "x"}
    sources = [{**text, "source": name} for name in ("crowd", "expert")]
    leak = {"input": "as in the test", "output": "x"}
    both = [{"input": "in two hands", "output": "x", "by": name} for name in ("ada", "bob")]

    def read(pool: str, test: str, **more: str) -> set[int]:
        known = [*tmp_path.glob("*.jsonl")]
        for path in known:
            path.unlink()
        files = []
        for name, rows in {pool: [*sources, leak, *both], test: [leak]}.items():
            own = [{**row, **more, **({"id": f"{name}{i}"} if named else {})} for i, row in enumerate(rows)]
            files.append(put(tmp_path / f"{name}.jsonl", own))
        gone = [path.name for path in known if not path.exists()]
        run(store, files[0], test=(files[1],), drop=tuple(gone))
        with store.read() as con:
            found = con.execute("SELECT line FROM pool WHERE row IN (FROM pruned)").fetchall()
        return {line for (line,) in found}

    assert read("a", "t") == set()
    with store.read() as con:
        ids = [name for (name,) in con.execute("SELECT id FROM pool WHERE line IN (1, 3, 4)").fetchall()]
    decide(store, "prune", "demonstration", ids)
    assert read("a", "t", more="1") == read("c", "u", more="2") == {1, 3, 4}


def test_an_id_that_a_pruned_row_had_long_ago_is_told(store: Workspace, tmp_path: Path) -> None:
    rows = made(4)
    path = put(tmp_path / "a.jsonl", rows)
    run(store, path)
    decide(store, "prune", "demonstration", ["0-1"])
    assert "1 row is gone" in run(store, put(tmp_path / "a.jsonl", [rows[0], *rows[2:]])).warnings[0]
    report = run(store, put(tmp_path / "a.jsonl", [*rows[2:], {"id": "0-1", "input": "quite new", "output": "x"}]))
    assert report.warnings == ("1 pruned row has changed and stays pruned: icl-curate restore --demo 0-1",)


def test_of_equal_rows_an_active_one_is_left(store: Workspace, tmp_path: Path) -> None:
    for name, more in (("a", {}), ("b", {"id": "b1"})):
        row = {"input": f"again and again {name}", "output": "x"}
        both = [{**row, "id": "b0"}, {**row, "id": "b2"}] if more else [row, row]
        run(store, put(tmp_path / f"{name}.jsonl", [*both, {"input": f"other {name}", "output": "y"}]))
        with store.read() as con:
            ids = [i for (i,) in con.execute("SELECT id FROM pool WHERE input = ?", [row["input"]]).fetchall()]
        decide(store, "prune", "demonstration", [min(ids)])
        run(store, put(tmp_path / f"{name}.jsonl", [{**row, **more}, {"input": f"other {name}", "output": "y"}]))
        assert row["input"] not in told_of(store)[0]


def test_rows_that_leave_a_pruned_source_are_told(store: Workspace, tmp_path: Path) -> None:
    rows = [{**row, "source": "a"} for row in made(4)]
    path = put(tmp_path / "a.jsonl", rows)
    run(store, path)
    decide(store, "prune", "source", ["a"])
    decide(store, "restore", "demonstration", [rows[1]["id"]])  # of it nothing is said: it stays
    path = put(tmp_path / "a.jsonl", [{**row, "source": "b"} for row in rows[:2]] + rows[2:])
    told = "1 row of a pruned source has another source now, which is not pruned: icl-curate prune --demo 0-0"
    assert run(store, path).warnings == (told,)
    with store.read() as con:
        active = con.execute("SELECT id FROM active").fetchall()
    assert {name for (name,) in active} == {row["id"] for row in rows[:2]}
    decide(store, "prune", "source", ["b"])
    decide(store, "restore", "source", ["a"])
    told = run(store, put(tmp_path / "a.jsonl", rows)).warnings
    assert told == ("the pruned source b has no row now; a has rows that say the same: icl-curate prune --source a",)


def test_a_pruned_source_without_rows_is_told(store: Workspace, tmp_path: Path) -> None:
    run(store, put(tmp_path / "a.jsonl", made(4)), put(tmp_path / "b.jsonl", made(4, seed=1)))
    decide(store, "prune", "source", ["a"])
    path = str((tmp_path / "a.jsonl").rename(tmp_path / "c.jsonl"))
    told = "the pruned source a has no row now; c has rows that say the same: icl-curate prune --source c"
    assert run(store, path, drop=("a.jsonl",)).warnings == (told,)
    assert run(store).warnings == ()
    decide(store, "prune", "source", ["c"])
    told = "the pruned source c has no row now; if it has another name: icl-curate prune --source NAME"
    assert run(store, put(tmp_path / "d.jsonl", made(4, seed=2)), drop=("c.jsonl",)).warnings == (told,)
    assert run(store).warnings == ()


def test_rows_that_come_into_a_pruned_source_are_told(store: Workspace, tmp_path: Path) -> None:
    rows = made(6)
    of = [{**row, "source": source} for row, source in zip(rows, "aaabbb", strict=True)]
    run(store, put(tmp_path / "a.jsonl", of[:5]))
    decide(store, "prune", "source", ["a"])
    told = "2 new rows are of pruned sources, and pruned as well: icl-curate restore --demo 0-4 --demo 0-5"
    came = [*of[:4], {**of[4], "source": "a"}, {**of[5], "source": "a"}]
    assert run(store, put(tmp_path / "a.jsonl", came)).warnings == (told,)
    changed = [{**came[0], "output": "another"}, *came[1:]]
    assert run(store, put(tmp_path / "a.jsonl", changed)).warnings == ()  # as it was
    renamed = [{**row, "id": f"new {row['id']}"} for row in changed]
    assert run(store, put(tmp_path / "a.jsonl", renamed)).warnings == ()
