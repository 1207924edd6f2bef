"""Corrected outputs: what applies, what undo brings back, what earlier evidence is worth, and what leaves the tool."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import duckdb
import numpy as np
import pytest
from factories.commands import Run
from factories.suspects_world import FAULTY, SOUND, make_pool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.check import check_pool
from icl_curate.engine.checks.suspects import find_suspects, pool_state
from icl_curate.engine.index.build import IndexPlan, dry_run_index, index_pool
from icl_curate.engine.index.questions import read_corrections
from icl_curate.engine.index.rows import LONGEST as LONGEST_READ
from icl_curate.engine.store import runs, schema, trials
from icl_curate.engine.store import workspace as workspace_module
from icl_curate.engine.store.decisions import decide, decided_rows, history, redo, relabel, settled_rows, undo
from icl_curate.engine.store.demonstrations import (
    active_labels,
    active_rows,
    fetch,
    find,
    task_of,
    workspace_fingerprint,
)
from icl_curate.engine.store.outputs import LONGEST, as_read, relabelled, set_outputs
from icl_curate.engine.store.overview import overview
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.trials import RowAnswers
from icl_curate.engine.store.workspace import Workspace

FILE = {row["id"]: row["output"] for row in (*SOUND, *FAULTY)}
NAMES = ["f0", "f1", "c1", "d2"]


def _outputs(workspace: Workspace) -> dict[str, str]:
    return {row.id: row.output for row in fetch(workspace, active_rows(workspace))}


def _kinds(workspace: Workspace) -> dict[str, str]:
    with workspace.read() as con:
        return dict(con.execute("SELECT id, kind FROM duplicates JOIN pool USING (row)").fetchall())


def test_a_corrected_output_applies_everywhere_and_undo_brings_the_files_back(tmp_path: Path) -> None:
    workspace = make_pool(tmp_path / "w")
    before = workspace_fingerprint(workspace)
    change = relabel(workspace, {"f0": "b", "r1": "a"}, ["looked up", "rare"], "ada")
    assert (change.action, change.targets, change.active_after) == ("relabel", ("f0", "r1"), len(FILE))
    assert _outputs(workspace) == FILE | {"f0": "b", "r1": "a"} and workspace_fingerprint(workspace) != before
    assert task_of(workspace).labels == ("a", "b") and "rare" not in active_labels(workspace)
    assert [(each.id, each.has, each.output) for each in relabelled(workspace)] == [
        ("f0", "a", "b"),
        ("r1", "rare", "a"),
    ]
    assert as_read(workspace, [1, relabelled(workspace)[0].row]) == {relabelled(workspace)[0].row: "a"}
    entry = history(workspace)[0]
    assert (entry.action, entry.scope, entry.who, entry.targets) == ("relabel", "output", "ada", ("f0", "r1"))
    undo(workspace)
    assert _outputs(workspace) == FILE and not relabelled(workspace) and "rare" in active_labels(workspace)


STEP = st.one_of(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["a", "b", "rare"]), min_size=1), st.just("undo")
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=6))
def test_the_latest_correction_that_is_not_undone_applies(
    steps: list[dict[str, str] | str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    workspace = make_pool(tmp_path_factory.mktemp("w") / "w")
    states = [dict(FILE)]
    for step in steps:
        if isinstance(step, str):
            if len(states) > 1:
                states.pop()
                undo(workspace)
            continue
        after = states[-1] | step
        if after == states[-1]:
            with pytest.raises(UsageError, match="already"):
                relabel(workspace, step)
            continue
        relabel(workspace, step)
        states.append(after)
        assert _outputs(workspace) == after
    assert _outputs(workspace) == states[-1]
    assert {each.id: each.has for each in relabelled(workspace)} == {
        name: FILE[name] for name, output in states[-1].items() if output != FILE[name]
    }


def test_a_dry_run_changes_nothing_and_pruning_and_correcting_do_not_touch_each_other(tmp_path: Path) -> None:
    workspace = make_pool(tmp_path / "w")
    decide(workspace, "prune", "demonstration", ["f0"])
    assert relabel(workspace, {"f0": "b"}, dry_run=True).dry_run and not relabelled(workspace)
    relabel(workspace, {"f0": "b"})
    assert "f0" not in _outputs(workspace)
    undo(workspace)
    undo(workspace)
    assert _outputs(workspace) == FILE


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    workspace = make_pool(tmp_path / "w")
    for outputs, told in (
        ({"nobody": "a"}, "no demonstration with id 'nobody'"),
        ({"f0": "a"}, "the output of 'f0' is so already"),
        ({"f0": "rar"}, "no row or query has the label 'rar'; did you mean 'rare'"),
        ({"f0": " "}, "the new output of 'f0' is empty"),
    ):
        with pytest.raises(UsageError, match=told):
            relabel(workspace, outputs)
    assert not history(workspace)
    relabel(workspace, {"f0": "new one", "f1": "b"}, new=True)
    assert _outputs(workspace)["f0"] == "new one" and history(workspace)[0].targets == ("f0",)


def test_an_output_is_one_that_index_reads(tmp_path: Path) -> None:
    workspace = make_pool(tmp_path / "w")
    assert LONGEST == LONGEST_READ
    for output, told in (
        ("a\0b", "contains NUL bytes"),
        ("x" * (LONGEST + 1), "has 1,000,001 characters, more than 1,000,000"),
        ("a\udc80b", "is not valid Unicode: a lone surrogate"),
    ):
        with pytest.raises(UsageError, match=f"the new output of 'f0' {told}"):
            relabel(workspace, {"f0": output}, new=True)
    relabel(workspace, {"f0": " b\n"})
    assert _outputs(workspace)["f0"] == "b"


def test_an_output_must_be_an_option_of_its_row(tmp_path: Path) -> None:
    path = tmp_path / "options.jsonl"
    rows = [{"id": f"o{i}", "input": f"which {i}", "output": "x", "options": ["x", "y"]} for i in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=(str(path),)))
    with pytest.raises(UsageError, match="'z' is not an option of 'o1'"):
        relabel(workspace, {"o1": "z"})
    relabel(workspace, {"o1": "y"})
    assert _outputs(workspace)["o1"] == "y"


def test_rows_that_agree_after_a_correction_repeat_each_other(tmp_path: Path) -> None:
    workspace = make_pool(tmp_path / "w")
    assert _kinds(workspace) == {"d2": "exact", "c2": "conflict", "c3": "exact"}
    relabel(workspace, {"c1": "b"})
    assert _kinds(workspace) == {"d2": "exact", "c2": "exact", "c3": "exact"}
    relabel(workspace, {"d2": "b"})
    assert _kinds(workspace)["d2"] == "conflict"
    kinds = _kinds(workspace)
    index_pool(workspace, IndexPlan(paths=(str(tmp_path / "faulty.jsonl"),), near_duplicate=0.8))
    assert _kinds(workspace) == kinds, "the index says the same"
    undo(workspace)
    undo(workspace)
    assert _kinds(workspace) == {"d2": "exact", "c2": "conflict", "c3": "exact"}


def test_repeats_that_differ_in_case_and_width_stay_repeats_after_a_correction(tmp_path: Path) -> None:
    texts = [
        "Stra\u00dfe closed?",
        "STRASSE closed?",
        "strasse  closed?",
        "\uff33\uff34\uff32\uff21\uff33\uff33\uff25 closed?",
    ]
    rows = [{"id": f"{i}", "input": text, "output": "aabb"[i]} for i, text in enumerate(texts)]
    workspace = _put(tmp_path / "pool.jsonl", *rows)
    assert _kinds(workspace) == {"1": "exact", "2": "conflict", "3": "exact"}
    relabel(workspace, {"2": "a"}, new=True)
    assert _kinds(workspace) == {"1": "exact", "2": "exact", "3": "conflict"}
    relabel(workspace, {"0": "b"}, new=True)
    assert _kinds(workspace) == {"1": "conflict", "2": "exact", "3": "exact"}
    undo(workspace)
    undo(workspace)
    assert _kinds(workspace) == {"1": "exact", "2": "conflict", "3": "exact"}


def test_a_correction_among_many_repeats_takes_little_memory() -> None:
    with duckdb.connect(config={"memory_limit": "150MB", "max_temp_directory_size": "0B"}) as con:
        schema.migrate(con)
        con.execute(
            """
            INSERT INTO demonstrations
            SELECT row, row, 'thanks a lot for all of it', row % 2, [], [], '', '', 'pool', '{}', '', '', 1,
                   make_timestamp(0), NULL, NULL FROM range(20000) r(row);
            INSERT INTO duplicates SELECT row, 0, 'exact', 1, 0 FROM demonstrations WHERE row > 0;
            INSERT INTO decisions VALUES (1, 1, make_timestamp(1), '', 'relabel', 'output', '7', '');
            INSERT INTO new_outputs VALUES (1, '0', 7)
            """
        )
        set_outputs(con, datetime(2026, 1, 1))
        assert con.execute("SELECT row FROM duplicates WHERE kind = 'conflict'").fetchall() == [(1,)]


def test_indexing_again_keeps_a_correction_until_the_file_itself_says_something_else(tmp_path: Path) -> None:
    workspace = make_pool(tmp_path / "w")
    relabel(workspace, {"f0": "b", "f2": "b"})
    path = tmp_path / "faulty.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:2] + rows[3:]), encoding="utf-8")
    index_pool(workspace, IndexPlan(paths=(str(path),)))
    assert _outputs(workspace)["f0"] == "b" and "f2" not in _outputs(workspace)
    rows[0]["output"] = "rare"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    index_pool(workspace, IndexPlan(paths=(str(path),)))
    found = _outputs(workspace)
    assert (found["f0"], found["f2"]) == ("rare", "b"), "a row that comes back is as it was"
    relabel(workspace, {"f0": "a"})
    undo(workspace)
    assert _outputs(workspace)["f0"] == "rare", "a correction of the row before says nothing about this one"


def _put(path: Path, *rows: dict[str, object]) -> Workspace:
    """Index these rows and one more, which keeps the pool from being empty."""
    rest = {"id": "rest", "input": "Which river is the longest?", "output": "Nile"}
    path.write_text("".join(json.dumps(row) + "\n" for row in (*rows, rest)), encoding="utf-8")
    workspace = Workspace.create(path.parent / "w")
    index_pool(workspace, IndexPlan(paths=(str(path),)))
    return workspace


FRANCE: dict[str, object] = {"id": "r", "input": "What is the capital of France?", "output": "Paris"}
PERU = FRANCE | {"input": "What is the capital of Peru?", "output": "Cuzco"}


def test_a_correction_is_of_a_question_and_not_of_an_id(tmp_path: Path) -> None:
    for row in (FRANCE, PERU):
        workspace = _put(tmp_path / "pool.jsonl", row)
    relabel(workspace, {"r": "Lima"})
    _put(tmp_path / "pool.jsonl", FRANCE)
    relabel(workspace, {"r": "PARIS"})
    assert [made.by for made in history(workspace)] == [{"→ PARIS": 1}, {"→ Lima": 1}]
    found = [decided_rows(workspace, made.batch)[0] for made in history(workspace)]
    assert [(row.input[-7:], row.before, row.after) for row in found] == [
        ("France?", "Paris", "PARIS"), ("f Peru?", "Cuzco", "Lima"),
    ]  # fmt: skip
    undo(workspace)
    assert _outputs(workspace)["r"] == "Paris"
    _put(tmp_path / "pool.jsonl", PERU)
    assert _outputs(workspace)["r"] == "Lima"


def test_history_tells_of_rows_that_are_gone(tmp_path: Path) -> None:
    workspace = _put(tmp_path / "pool.jsonl", FRANCE, PERU | {"id": "p"})
    relabel(workspace, {"r": "PARIS", "p": "PARIS"})
    decide(workspace, "prune", "demonstration", ["r", "p"])
    _put(tmp_path / "pool.jsonl", FRANCE)
    assert [made.by for made in history(workspace)] == [{"pool": 2}, {"→ PARIS": 2}]
    assert [[row.id for row in decided_rows(workspace, batch)] for batch in (1, 2)] == [["r", "p"]] * 2


def test_a_correction_stands_where_only_metadata_changes_and_one_that_lapses_is_told(tmp_path: Path) -> None:
    path = tmp_path / "pool.jsonl"
    workspace = _put(path, FRANCE | {"year": 1, "by": "ada"})
    relabel(workspace, {"r": "PARIS"})
    for row in (
        {"by": "ada", "year": 1} | FRANCE,
        FRANCE | {"exported_at": "today"},
        FRANCE | {"year": 1, "by": "ada"},
    ):
        _put(path, row)
        assert _outputs(workspace)["r"] == "PARIS" and [each.has for each in relabelled(workspace)] == ["Paris"]
        assert history(workspace)[-1].by == {"→ PARIS": 1}
        undo(workspace)
        assert _outputs(workspace)["r"] == "Paris"
        redo(workspace)
    for row, told in (
        (FRANCE | {"context": "Texas"}, 1),
        (FRANCE, 0),
        (FRANCE | {"output": "PARIS"}, 0),  # the file took it over
        (FRANCE, 0),
        (PERU, 1),
    ):
        path.write_text("".join(json.dumps(each) + "\n" for each in (row, SOUND[0])), encoding="utf-8")
        plan = IndexPlan(paths=(str(path),))
        for warnings in (dry_run_index(workspace.path, plan).warnings, index_pool(workspace, plan).warnings):
            lapse = ("1 correction no longer stands: the files say something new about the rows",)
            assert warnings == lapse * told
        assert (_outputs(workspace)["r"] == "PARIS") == (row["output"] != "Cuzco" and "context" not in row)


def test_a_pruned_row_that_changes_in_its_file_stays_pruned_and_that_is_told(tmp_path: Path) -> None:
    path = tmp_path / "pool.jsonl"
    workspace = _put(path, FRANCE)
    decide(workspace, "prune", "demonstration", ["r"])
    for row, told in ((FRANCE | {"year": 1}, False), (PERU, True), (PERU, False)):
        path.write_text("".join(json.dumps(each) + "\n" for each in (row, SOUND[0])), encoding="utf-8")
        plan = IndexPlan(paths=(str(path),))
        for warnings in (dry_run_index(workspace.path, plan).warnings, index_pool(workspace, plan).warnings):
            assert warnings == ("1 pruned row has changed and stays pruned: icl-curate restore --demo r",) * told
    decide(workspace, "keep", "demonstration", ["r"])
    path.write_text(json.dumps(FRANCE) + "\n")
    assert not index_pool(workspace, IndexPlan(paths=(str(path),))).warnings


def test_undo_and_redo_reach_rows_that_are_out_of_the_pool(tmp_path: Path) -> None:
    path = tmp_path / "pool.jsonl"
    workspace = _put(path, FRANCE)
    relabel(workspace, {"r": "Lyon"})
    _put(path)
    undo(workspace)
    _put(path, FRANCE)
    assert _outputs(workspace)["r"] == "Paris" and not relabelled(workspace)
    _put(path, FRANCE | {"split": "test"})
    redo(workspace)
    assert find(workspace, "r").output == "Lyon"
    undo(workspace)
    assert find(workspace, "r").output == "Paris"


def test_corrections_of_older_releases_are_of_the_row_that_got_them_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:16])
        older.setattr(schema, "VERSION", 16)
        store = Workspace.create(tmp_path / "w")
        with store.write() as con:
            for row, indexed in enumerate((1, 3, 12)):
                con.execute(
                    "INSERT INTO demonstrations SELECT ?, 'r', '', 'as read', [], [], '', '', 'pool', '{}', '', '', 1,"
                    " make_timestamp(?), NULL, NULL",
                    [row, indexed],
                )
            for seq, (at, output) in enumerate(((4, "Lima"), (7, "PARIS"), (9, "Lyon"))):
                con.execute(
                    "INSERT INTO decisions VALUES (?, ?, make_timestamp(?), '', 'relabel', 'output', 'r', '')",
                    [seq, seq, at],
                )
                con.execute("INSERT INTO new_outputs VALUES (?, ?)", [seq, output])
            con.execute("UPDATE demonstrations SET input = CASE row WHEN 0 THEN 'a  b' WHEN 1 THEN 'c' ELSE 'A b ' END")
            con.execute("INSERT INTO duplicates VALUES (1, 0, 'near', 1), (2, 0, 'exact', 1)")
            con.execute(
                """
                INSERT INTO output_changes VALUES
                    (1, make_timestamp(5), 'Lima'), (0, make_timestamp(8), 'PARIS'), (0, make_timestamp(11), 'Lima')
                """
            )
    workspace_module._lingering.close()
    with Workspace.open(tmp_path / "w").read() as con:
        found = con.execute("SELECT output, row FROM new_outputs ORDER BY seq").fetchall()
        assert con.execute("SELECT row, same FROM duplicates ORDER BY row").fetchall() == [(1, 1), (2, 0)]
    assert found == [("Lima", 1), ("PARIS", 0), ("Lyon", 1)], "of one that changed nothing the latest row then"


def test_a_run_and_the_status_tell_the_same_of_what_changed_since(tmp_path: Path) -> None:
    path = tmp_path / "pool.jsonl"
    workspace = _put(path, FRANCE, PERU | {"id": "s"})

    def since() -> tuple[int, int, int]:
        """Of the latest evaluation, as both say: decisions that applied, those that changed, and rows."""
        [run], seen = runs.latest(workspace), overview(workspace)
        assert (run.decisions, run.rows > 0) == (seen.evaluated_since, seen.rows_changed_since_evaluation)
        return len(run.applied), run.decisions, run.rows

    decide(workspace, "prune", "demonstration", ["r"])
    _put(path, FRANCE)
    with runs.recorded(workspace, "evaluate", "offline", {}):
        pass
    assert since() == (1, 0, 0)
    undo(workspace)
    assert since() == (1, 1, 0)
    redo(workspace)
    assert since() == (1, 0, 0)
    _put(path, FRANCE, PERU | {"id": "s"})
    assert since() == (1, 0, 1), "a row that came back"


def test_evidence_from_before_a_correction_is_not_counted(tmp_path: Path) -> None:
    workspace = make_pool(tmp_path / "w")
    rows = {row.id: row.row for row in fetch(workspace, active_rows(workspace))}
    pair = [rows["f0"], rows["f1"]]
    source = fetch(workspace, pair)[0].source
    with runs.recorded(workspace, trials.KIND, "llm", {}) as record:
        found = trials.Trials(
            record.run, np.array([99, 99]), np.array(pair), [source] * 2, ["a", "b"], np.array([0, 1]) > 0
        )
        trials.save(workspace, found, {"reliability": {"s": 0.5}})
        answered = RowAnswers(np.array(pair), ["a", "b"], np.array([True, True]), np.full(2, np.nan), [[], []])
        trials.save_answers(workspace, record.run, answered)
    step = {"batch": 0, "query": 99, "place": 1, "score": 0.5, "before": True, "after": False}
    with runs.recorded(workspace, "train-ranker", "llm", {}) as record:
        steps = [
            {"run": record.run, "row": row, "shown": [row], "answer_before": "a", "answer_after": "b", **step}
            for row in pair
        ]
        with workspace.write() as con:
            for each in steps:
                columns = ", ".join(each)
                con.execute(
                    f"INSERT INTO ranker_steps ({columns}) VALUES ({', '.join('?' * len(each))})", [*each.values()]
                )
    relabel(workspace, {"f0": "b"})
    left = trials.latest(workspace)
    assert left is not None and left.rows.tolist() == [rows["f1"]]
    assert trials.latest_answers(workspace, zero_shot=True).rows.tolist() == [rows["f1"]]
    assert [each.id for each in trials.row_flips(workspace)] == ["f1"]
    assert [(each.hits, each.accuracy) for each in trials.source_summaries(workspace) if each.source == source] == [
        (1, 1)
    ]
    with runs.recorded(workspace, trials.KIND, "llm", {}) as record:
        trials.save(workspace, replace(found, run=record.run), {"reliability": {"s": 0.5}})
    again = trials.latest(workspace)
    assert again is not None and again.rows.tolist() == pair, "what is asked later is about the new output"
    undo(workspace)
    again = trials.latest(workspace)
    assert again is not None and (again.run, again.rows.tolist()) == (1, pair), "the first run is whole again"
    assert trials.latest_answers(workspace, zero_shot=True).rows.tolist() == pair, "the row is again what it was then"
    assert [each.id for each in trials.row_flips(workspace)] == ["f0", "f1"]


def test_a_corrected_row_is_settled_and_check_leaves_its_label_alone(tmp_path: Path) -> None:
    workspace = make_pool(tmp_path / "w")
    relabel(workspace, {"c2": "a"})
    decide(workspace, "keep", "demonstration", ["m1"])
    rows = {row.id: row.row for row in fetch(workspace, active_rows(workspace))}
    assert settled_rows(workspace).tolist() == sorted([rows["c2"], rows["m1"]])
    pool = ActivePool(workspace, Settings())
    found = check_pool(pool, ["conflict", "duplicate", "mojibake"])
    assert {(one.id, one.kind) for one in found.rows} == {("c2", "duplicate"), ("c3", "conflict"), ("d2", "duplicate")}
    assert {one.id for one in check_pool(pool, ["mojibake"], also_kept=True).rows} == {"m1"}
    suspects = find_suspects(workspace, Settings()).rows
    left = {one.row for one in suspects} & set(active_rows(workspace).tolist()) - {rows["m1"]}
    assert rows["c2"] in left and overview(workspace).suspects_open == len(left), "it still repeats another row"
    assert rows["c2"] not in pool_state(workspace, Settings()).gone
    relabel(workspace, {"c3": "a"})
    assert "c3" in {one.id for one in suspects} and overview(workspace).suspects_open == len(left) - 1


def test_corrections_are_read_as_outputs_are(tmp_path: Path) -> None:
    (path := tmp_path / "f.jsonl").write_text('{"id": 7, "output": true}\n{"id": "b", "output": ["y", "x"]}\n')
    assert read_corrections(str(path))[0] == {"7": "true", "b": "y, x"}


def test_the_command_corrects_one_row_or_a_file_and_exports_say_so(support: Path, tmp_path: Path, run: Run) -> None:
    place = ("-w", str(support))
    assert run("relabel", "hd-0001", "refund_reques", *place).code == 2
    done = run("relabel", "ar-0043", "pause_subscription", "--reason", "old scheme", "--json", *place)
    assert done.code == 0 and json.loads(done.out)["targets"] == ["ar-0043"]
    path = tmp_path / "mended.csv"
    path.write_text("id,label\nar-0055,delivery_address_change\nar-0043,pause_subscription\n", encoding="utf-8")
    told = run("relabel", "--from", str(path), *place)
    assert told.code == 0 and "relabel ar-0055 → delivery_address_change: leaves 1,200 active" in told.out
    out = tmp_path / "out.jsonl"
    assert run("export", str(out), *place).code == 0
    exported = {row["id"]: row["output"] for row in map(json.loads, out.read_text(encoding="utf-8").splitlines())}
    assert exported["ar-0043"] == "pause_subscription" and exported["ar-0055"] == "delivery_address_change"
    manifest = json.loads(Path(f"{out}.manifest.json").read_text(encoding="utf-8"))
    assert [each["id"] for each in manifest["relabelled"]] == ["ar-0043", "ar-0055"]
    assert manifest["relabelled"][0]["from"] == "club_membership"
    before = manifest["content_hash"]
    for _ in range(2):
        assert run("undo", *place).code == 0
    assert run("export", str(out), "--force", *place).code == 0
    again = json.loads(Path(f"{out}.manifest.json").read_text(encoding="utf-8"))
    assert again["content_hash"] != before and again["relabelled"] == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id,label\nar-0043,\n", "line 2: no output"),
        ("id,label\n,refund_request\n", "line 2: no id"),
        ("id,label\nar-0043,a\nar-0043,b\n", "line 3: a second output"),
        (
            "id,label\nar-0043,refund_request\nno-such,refund_request\n",
            "bad.csv, line 3: no demonstration with id 'no-such'",
        ),
        ("id,label\nar-0043,refund_request\nar-0055,refnd\n", "bad.csv, line 3: no row or query has the label 'refnd'"),
        ("ar-0043,a\n", "has no row, or only the names of columns"),
        ("id,label\nar-0043,caf\xe9\n", "iconv -f WINDOWS-1252"),
    ],
)
def test_a_file_of_corrections_is_refused_by_its_first_bad_line(
    text: str, told: str, support: Path, tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="latin-1")
    failed = run("relabel", "--from", str(path), "-w", str(support))
    assert failed.code == 2 and told in failed.err
    assert not history(Workspace.open(support))


def test_check_relabels_what_is_likely_and_suggestions_are_right(support: Path, run: Run) -> None:
    from factories.truth import is_wrong, true_outputs

    done = run("check", "relabel", "--json", "-w", str(support))
    assert done.code == 0
    told = json.loads(done.out)
    suggested = {
        one["id"]: one["suggestion"].removeprefix("relabel: ")
        for one in told["rows"]
        if one["kind"] == "label" and one["numbers"]["suggested"] >= 0.5
    }
    assert told["relabelled"] == suggested and told["pruned"] == [] and told["active_after"] == 1200
    right = [true_outputs()[name] == output for name, output in suggested.items()]
    spoiled = [name for name in suggested if not is_wrong()[name]]
    assert sum(right) > 340 and len(spoiled) < 20, "of 465 wrong rows and 735 right ones; a wrong row cannot get worse"
    assert {each.id: each.output for each in relabelled(Workspace.open(support))} == suggested
