"""How far a curation is, through the commands: the accuracy before and after, and the state of each step."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import duckdb
import numpy as np
import pytest
from factories.commands import Run
from factories.servers import Server
from icl_curate.engine.base.errors import Cancelled
from icl_curate.engine.http import trust
from icl_curate.engine.index import build
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.jobs.folder import home, identity, write_object
from icl_curate.engine.report.road import Status, status
from icl_curate.engine.store import columns, runs
from icl_curate.engine.store.overview import EXPORTED_TO
from icl_curate.engine.store.workspace import Workspace
from icl_curate.render.pool import NOTHING_LEFT, accuracy_line
from icl_curate.tui.tabs.overview.rows import pool_facts
from icl_curate.tui.tabs.problems.groups import GroupsModel, groups_line

WORDS = ("iron", "gold", "rain", "snow", "oak", "elm", "wolf", "lynx", "ship", "boat", "king", "duke")


@pytest.fixture
def made(tmp_path: Path, run: Run) -> Path:
    """Two sources, of which one has the outputs turned, and ten queries."""
    for source, turned in (("good", 0), ("bad", 1)):
        spoilt = " cafÃ© Ã¼ber" * turned  # two rows are named whatever the labels, which no input tells
        rows = [
            {"input": f"{source} {word} {i}{spoilt * (i > 9)}", "output": "ab"[(i + turned) % 2]}
            for i, word in enumerate(WORDS)
        ]
        (tmp_path / f"{source}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"id": f"q{i}", "input": f"{word} {i}", "output": "ab"[i % 2]} for i, word in enumerate(WORDS[:10])]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    files = (tmp_path / "good.jsonl", tmp_path / "bad.jsonl", "--test", tmp_path / "test.jsonl")
    run("index", *files, "-w", tmp_path / "w")
    return tmp_path / "w"


def seen(path: Path) -> Status:
    return status(Workspace.open(path), "dense")


def steps(path: Path) -> dict[str, tuple[str, str]]:
    return {step.name: (step.state, step.told) for step in seen(path).road}


def test_an_index_that_was_interrupted_before_it_compared_does_not_say_that_nothing_repeats(
    made: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, pool = Workspace.open(made), made.parent / "good.jsonl"
    pool.write_text(pool.read_text() * 2)
    with monkeypatch.context() as patch, pytest.raises(Cancelled):
        patch.setattr(build.duplicates, "update", Mock(side_effect=Cancelled))
        index_pool(workspace, IndexPlan(paths=(str(pool),)))
    assert steps(made)["problems"] == ("open", "repeats and leaks not looked for: index did not end")
    assert seen(made).next_step == "icl-curate index"
    shown = run("status", "-w", made).out
    assert shown.count("not looked for: icl-curate index") == 2
    facts = {fact.label: str(fact.value) for fact in pool_facts(seen(made))}
    assert facts["repeats"] == facts["leaks"] == "not looked for: icl-curate index"
    model = GroupsModel("duplicate")
    model.take(model.look(workspace, 0), 0)
    assert "not looked for" in groups_line(model, "duplicates").plain
    assert "duplicate, leak: icl-curate index" in " ".join(run("check", "-w", made).out.split())
    run("index", "-w", made)
    assert seen(made).compared and seen(made).duplicates == {"exact": 12}


def test_a_stopped_index_is_to_be_resumed(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w")
    assert seen(workspace.path).next_step == "icl-curate index POOL.jsonl"
    assert steps(workspace.path)["sources"] == ("not begun", "no rows")
    (folder := home(workspace) / "1").mkdir(parents=True)
    words, there = ["index", "pool.jsonl"], str(tmp_path)
    signed = trust.sign(identity(workspace.path, words, there))
    fields = {"arguments": words, "directory": there, "created": 1.0, "signature": signed}
    write_object(folder / "job.json", fields)
    assert seen(workspace.path).next_step == "icl-curate jobs resume 1"
    write_object(folder / "state.json", {"started": 2.0, "ended": 3.0, "code": 2})  # a wrong file is wrong again
    assert seen(workspace.path).next_step == "icl-curate index POOL.jsonl"


def evaluate(run: Run, made: Path) -> int:
    return int(run("evaluate", "-m", "dense", "-k", 2, "--seeds", 1, "-w", made, "--json").json["run"])


def test_the_road_from_a_pool_as_it_came_to_an_export(made: Path, run: Run, tmp_path: Path) -> None:
    begun = seen(made)
    assert begun.measured is None and begun.next_step == "icl-curate evaluate --split test"
    assert steps(made) == {
        "problems": ("not begun", "suspects not looked for"),
        "sources": ("not begun", "2 sources, not weighed"),
        "evaluate": ("not begun", "not measured"),
        "export": ("not begun", "24 of 24 rows"),
    }
    first = evaluate(run, made)
    one = seen(made).measured
    assert one is not None and one.as_it_came and (one.before, one.gain, one.queries) == (None, None, 10)
    assert steps(made)["evaluate"] == ("done", "the pool as it is")

    run("prune", "--source", "bad", "-w", made)
    assert steps(made)["evaluate"] == ("open", "measured 1 decision ago")
    assert steps(made)["export"] == ("not begun", "12 of 24 rows")
    assert seen(made).next_step == "icl-curate evaluate --split test"
    latest = evaluate(run, made)
    two = seen(made).measured
    assert two is not None and two.gain is not None and two.before is not None
    with duckdb.connect(made / "workspace.duckdb", read_only=True) as con:
        values = [
            np.array(
                con.execute(
                    "SELECT value FROM evaluations WHERE run = ? AND method = 'dense' ORDER BY row", [of]
                ).fetchall(),
                float,
            )
            for of in (first, latest)
        ]
    assert (two.before, two.accuracy.value) == pytest.approx([each.mean() for each in values])
    assert two.gain.value == pytest.approx((values[1] - values[0]).mean()) and two.gain.value > 0
    assert two.history == pytest.approx([each.mean() for each in values]) and two.as_it_came
    told = accuracy_line(two)
    assert told.startswith(f"{two.before:.3f} → {two.accuracy.value:.3f}  +{two.gain.value:.3f}")
    assert "dense, 10 test queries, offline" in told
    lines = run("status", "-w", made).out.splitlines()
    assert any(told in line and line.split()[0] == two.metric for line in lines)  # under the name of what it is

    assert seen(made).next_step == "icl-curate export curated.jsonl"
    run("export", tmp_path / "part.jsonl", "--source", "good", "-w", made)
    assert seen(made).exported_since is None  # a part of the pool
    run("export", tmp_path / "curated.jsonl", "-w", made)
    assert steps(made)["export"] == ("done", "12 of 24 rows, written")
    (tmp_path / "curated.jsonl").unlink()
    assert steps(made)["export"] == ("done", "12 of 24 rows, written; curated.jsonl is no longer there")
    with Workspace.open(made).write() as con:  # by somebody else
        columns.note(con, EXPORTED_TO, "//theirs/share/curated.jsonl")
    assert steps(made)["export"] == ("done", "12 of 24 rows, written"), "another machine is not asked"


@pytest.mark.parametrize(
    ("llm", "asked"),
    [
        ("openai:my model", " --llm 'openai:my model'"),
        ("openai:o3", " --llm openai:o3"),
        ("groq:llama3", " --llm groq:llama3"),
        ("offline", ""),
        ("program:anybody:theirs", ""),
        ("--llm=openai:x", ""),
        ("openai:x\x1b[2J", ""),
    ],
)
def test_the_next_step_asks_the_llm_that_was_asked_last_and_no_stand_in_nor_code(
    made: Path, run: Run, llm: str, asked: str
) -> None:
    evaluate(run, made)
    run("prune", "--source", "bad", "-w", made)
    with duckdb.connect(made / "workspace.duckdb") as con:
        con.execute("UPDATE runs SET llm = ? WHERE kind = 'evaluate'", [llm])
    assert seen(made).next_step == "icl-curate evaluate --split test" + asked


def test_the_next_step_grades_as_the_work_did_whose_llm_it_asks_but_by_no_code(made: Path, run: Run) -> None:
    graded = ("--metric", "f1", "--read", "line", "--least", "0.7", "--template", "xml")
    assert run("evaluate", "-m", "dense", "-k", 2, "--seeds", 1, "-w", made, *graded).code == 0
    run("prune", "--source", "bad", "-w", made)

    def step(settings: str = "settings") -> str:
        with Workspace.open(made).write() as con:
            con.execute(f"UPDATE runs SET llm = 'openai:m', settings = {settings} WHERE kind = 'evaluate'")
        return seen(made).next_step.removeprefix("icl-curate evaluate --split test --llm openai:m")

    assert step() == " --metric f1 --read line --least 0.7 --template xml"
    assert step("""json_merge_patch(settings, '{"graded_by": {"metric": "os:system"}}')""") == ""
    assert step("""'{"graded_by": ["accuracy"]}'""") == ""


def test_the_next_step_names_no_file_as_template_that_a_stranger_could_want(
    made: Path, run: Run, tmp_path: Path
) -> None:
    mine, secret = tmp_path / "mine.jinja", tmp_path / "key"
    mine.write_text("{{ query.input }}")
    secret.write_text("sk-secret")
    assert run("evaluate", "-m", "dense", "-k", 2, "--seeds", 1, "-w", made, "--template", mine).code == 0
    run("prune", "--source", "bad", "-w", made)

    def step(named: Path = mine) -> str:
        with Workspace.open(made).write() as con:
            con.execute(
                "UPDATE runs SET llm = 'openai:m', settings = replace(settings::VARCHAR, ?, ?) WHERE kind = 'evaluate'",
                [str(mine), str(named)],
            )
        return seen(made).next_step.partition("--template ")[2]

    assert step() == str(mine)
    mine.write_text("{{ query.input }} changed since")
    assert step() == "FILE"
    assert "FILE" in run("evaluate", "--template", "FILE", "-w", made).err
    assert step(secret) == "FILE"


def test_the_next_step_asks_the_server_that_was_asked_and_names_none_that_a_stranger_could_have(
    made: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server() as server:
        there = ("--llm", "openai:stub", "--base-url", server.url)
        assert run("evaluate", "-m", "dense", "-k", 2, "--seeds", 1, "-w", made, *there).code == 0
    run("prune", "--source", "bad", "-w", made)

    def step() -> str:
        told = run("status", "-w", made, "--json").json["next_step"]
        assert told.startswith("icl-curate evaluate --split test --llm openai:stub")
        return told.partition("openai:stub")[2]

    assert step() == " --base-url URL"
    assert "URL" in run("evaluate", "--llm", "openai:stub", "--base-url", "URL", "-w", made).err, "it asks nobody"
    trust.confirm(made, server.url)
    assert step() == f" --base-url {server.url}"
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert step() == ""


def test_a_tuning_that_changed_nothing_is_not_the_next_step_again(made: Path, run: Run) -> None:
    evaluate(run, made)
    workspace = Workspace.open(made)
    runs.finish(workspace, runs.start(workspace, "train-sources", "offline", {}), "done", {})
    assert seen(made).next_step == "icl-curate tune"
    runs.finish(workspace, runs.start(workspace, "tune", "offline", {}), "done", {})
    assert not seen(made).next_step.startswith("icl-curate tune")


def test_the_next_step_is_the_first_that_is_open_and_at_the_end_there_is_none(
    made: Path, run: Run, tmp_path: Path
) -> None:
    evaluate(run, made)
    run("export", tmp_path / "curated.jsonl", "-w", made)
    assert seen(made).next_step == "icl-curate check"  # suspects were not looked for
    run("check", "-w", made)
    assert seen(made).suspects_open and seen(made).next_step == "icl-curate check"

    suspects = [*seen_rows(made, "bad"), *seen_rows(made, "good")[1:]]
    run("keep", *suspects, "-w", made)
    run("prune", "--demo", seen_rows(made, "good")[0], "-w", made)
    assert (seen(made).suspects_open, seen(made).next_step) == (0, "icl-curate evaluate --split test")
    evaluate(run, made)
    assert seen(made).next_step == "icl-curate export curated.jsonl"
    run("export", tmp_path / "again.jsonl", "-w", made)
    assert seen(made).next_step == "" and f"next: {NOTHING_LEFT}" in run("status", "-w", made).out
    run("undo", "-w", made)
    assert seen(made).next_step.startswith("icl-curate evaluate")


def test_what_was_decided_and_undone_since_is_told(made: Path, run: Run, tmp_path: Path) -> None:
    run("prune", "--source", "bad", "-w", made)
    evaluate(run, made)
    late = seen(made).measured
    assert late is not None and not late.as_it_came and "not measured before" in accuracy_line(late)
    run("export", tmp_path / "curated.jsonl", "-w", made)
    run("undo", "-w", made)
    assert steps(made)["export"] == ("open", "24 of 24 rows, written 1 decision ago")
    again = seen(made).measured
    assert again is not None and not again.as_it_came, "it was measured without the source"
    assert steps(made)["evaluate"][0] == "open"
    run("prune", "--source", "good", "-w", made)
    run("undo", "-w", made)  # both after the export: nothing more has changed
    assert steps(made)["export"][1].endswith("written 1 decision ago")


def test_rows_that_came_went_or_moved_since_are_told(made: Path, run: Run, tmp_path: Path) -> None:
    pool, asked = tmp_path / "good.jsonl", tmp_path / "test.jsonl"
    rows = pool.read_text().splitlines()

    def indexed(*words: object) -> tuple[str, str]:
        run("index", *words, "-w", made)
        return steps(made)["evaluate"][1], steps(made)["export"][1].rpartition(", ")[2]

    def told_anew() -> None:
        again = evaluate(run, made)
        assert run("export", tmp_path / f"curated-{again}.jsonl", "-w", made).code == 0
        assert indexed() == ("the pool as it is", "written")

    stale = ("measured before its rows changed", "written before its rows changed")
    told_anew()
    pool.write_text("\n".join(rows[1:]))
    assert indexed() == stale and seen(made).next_step.startswith("icl-curate evaluate")
    told_anew()
    pool.write_text("\n".join(rows))  # the row comes back
    assert indexed() == stale
    told_anew()
    assert indexed("--validation-fraction", 0.3) == stale  # rows move
    told_anew()
    asked.write_text("\n".join(asked.read_text().splitlines()[:8]))
    assert indexed() == (stale[0], "written"), "queries are no rows of the pool"
    run("prune", "--source", "bad", "-w", made)
    both = "1 decision ago and before its rows changed"
    assert indexed() == (f"measured {both}", "written 1 decision ago")


def test_who_decides_first_can_measure_the_pool_as_it_was_indexed(made: Path, run: Run) -> None:
    """Methods select, and are answered, as they were before the first decision."""
    asked = ("evaluate", "-m", "dense,bm25,random", "-k", 2, "--seeds", 1, "-w", made, "--json")

    def answers(of: int) -> list[tuple[object, ...]]:
        query = "SELECT method, row, demonstrations, answer, value FROM evaluations WHERE run = ? ORDER BY ALL"
        with duckdb.connect(made / "workspace.duckdb", read_only=True) as con:
            return con.execute(query, [of]).fetchall()

    first = run(*asked).json
    run("relabel", seen_rows(made, "good")[0], "c", "--new-label", "-w", made)
    run("prune", "--source", "bad", "-w", made)
    late = run(*asked).json
    assert answers(late["run"]) != answers(first["run"])
    told = run(*asked[:-1], "--as-indexed")
    assert "the pool as it was indexed" in told.out
    again = run(*asked, "--as-indexed").json
    assert answers(again["run"]) == answers(first["run"]) and again["as_indexed"] and "as_indexed" not in late
    assert all(one["calls"] == one["cached_calls"] for one in again["methods"].values()), "the same prompts"
    assert steps(made)["evaluate"] == ("done", "the pool as it is"), "of which the later run says nothing"
    assert seen(made).evaluations == 4

    with Workspace.open(made).write() as con:  # as if nothing had been measured before the decisions
        con.execute("DELETE FROM runs WHERE run = ?", [first["run"]])
    found = seen(made).measured
    assert found is not None and found.as_it_came and found.gain is not None
    assert found.before == pytest.approx(first["methods"]["dense"]["accuracy"])
    assert found.accuracy.value == pytest.approx(late["methods"]["dense"]["accuracy"])
    compared = run("report", made / "report.html", "-w", made, "--json").json["compared"]
    assert {one["method"]: one["before"] for one in compared}["dense"] == pytest.approx(found.before)


def seen_rows(path: Path, source: str) -> list[str]:
    with duckdb.connect(path / "workspace.duckdb", read_only=True) as con:
        return [
            name for (name,) in con.execute("SELECT id FROM pool WHERE source = ? ORDER BY row", [source]).fetchall()
        ]


def test_before_and_after_are_told_of_the_same_queries(made: Path, run: Run, tmp_path: Path) -> None:
    few = ("evaluate", "-m", "dense", "-k", 2, "--seeds", 1, "--limit", 4, "-w", made)
    run(*few)
    run("prune", "--demo", seen_rows(made, "bad")[0], "-w", made)
    evaluate(run, made)
    found = seen(made).measured
    assert found is not None and found.gain is not None and found.before is not None
    assert found.queries == 4 and found.accuracy.value == pytest.approx(found.before + found.gain.value)
    assert found.accuracy.low <= found.accuracy.value <= found.accuracy.high
    assert len(found.history) == 1, "a curve of runs with other queries would rise by their choice"
    run("report", tmp_path / "report.html", "-w", made)
    drawn = (tmp_path / "report.html").read_text()
    assert "as read: dense, 4 test" in drawn and "now: dense, 10 test" in drawn


def test_what_was_measured_before_the_latest_decisions_is_no_gain_of_them(made: Path, run: Run) -> None:
    one = evaluate(run, made)
    assert evaluate(run, made) > one
    same = seen(made).measured
    assert same is not None and same.gain is None and "→" not in accuracy_line(same), "the same pool twice"
    run("prune", "--demo", seen_rows(made, "bad")[0], "-w", made)
    early = seen(made).measured
    assert early is not None and (early.before, early.gain, early.decided_since) == (None, None, 1)
    assert "; not measured since: 1 decision  dense" in accuracy_line(early)
    evaluate(run, made)
    run("prune", "--source", "bad", "-w", made)
    part = seen(made).measured
    assert part is not None and part.gain is not None and part.decided_since == 1
    assert "→" in accuracy_line(part) and "; not measured since: 1 decision  dense" in accuracy_line(part)


def test_as_many_rows_that_came_or_went_need_not_be_the_same_ones(made: Path, run: Run, tmp_path: Path) -> None:
    pool = tmp_path / "good.jsonl"
    rows = pool.read_text().splitlines()
    for changed in ([*rows[1:], rows[0].replace("iron", "zinc")], rows[1:]):
        evaluate(run, made)
        pool.write_text("\n".join(changed))
        run("index", "-w", made)
    store = Workspace.open(made)
    assert [runs.followed(store, done).rows for done in runs.finished(store, "evaluate")] == [1, 1]
    told = seen(made).measured
    assert told is not None and told.gain is not None


def test_what_was_measured_after_a_decision_says_nothing_of_later_ones(made: Path, run: Run) -> None:
    run("prune", "--demo", seen_rows(made, "bad")[0], "-w", made)
    evaluate(run, made)
    run("prune", "--source", "bad", "-w", made)
    found = seen(made).measured
    assert found is not None and "not measured since: 1 decision" in accuracy_line(found)
    assert "after what was decided" not in accuracy_line(found)


def test_a_trial_with_a_few_queries_is_neither_the_latest_nor_the_pool_as_it_is_now(made: Path, run: Run) -> None:
    evaluate(run, made)
    run("prune", "--source", "bad", "-w", made)
    evaluate(run, made)
    run("evaluate", "-m", "dense", "-k", 2, "--seeds", 1, "--limit", 3, "-w", made)
    found = seen(made).measured
    assert found is not None and found.queries == 10 and found.gain is not None
    [pair] = run("report", made / "r.html", "-w", made, "--json").json["compared"]
    assert pair["queries"] == 10


def test_a_gain_is_told_of_other_decisions_whatever_was_undone_since(made: Path, run: Run) -> None:
    run("prune", "--source", "bad", "-w", made)
    evaluate(run, made)
    run("undo", "-w", made)
    run("prune", "--source", "good", "-w", made)
    evaluate(run, made)
    told = seen(made).measured
    assert told is not None and told.gain is not None and not told.as_it_came
    run("undo", "-w", made)
    late = seen(made).measured
    assert late is not None and (late.gain, late.decided_since) == (told.gain, 1)


def test_trials_that_ask_fewer_each_time_are_compared_with_the_largest(made: Path, run: Run) -> None:
    evaluate(run, made)
    run("prune", "--source", "bad", "-w", made)
    evaluate(run, made)
    for few in (6, 4):
        run("evaluate", "-m", "dense", "-k", 2, "--seeds", 1, "--limit", few, "-w", made)
    found = seen(made).measured
    [pair] = run("report", made / "r.html", "-w", made, "--json").json["compared"]
    assert found is not None and pair["queries"] == found.queries == 6


def test_a_trial_measures_no_decision(made: Path, run: Run) -> None:
    evaluate(run, made)
    run("prune", "--source", "bad", "-w", made)
    run("evaluate", "-m", "dense", "-k", 2, "--seeds", 1, "--limit", 3, "-w", made)
    found = seen(made)
    assert found.measured is not None and found.measured.decided_since == 1
    assert "; not measured since: 1 decision" in accuracy_line(found.measured)
    assert steps(made)["evaluate"] == ("open", "measured 1 decision ago")
    assert (found.next_step, found.last_evaluation) == ("icl-curate evaluate --split test", found.runs["evaluate"])


def test_an_evaluation_of_all_queries_that_are_left_is_no_trial(made: Path, run: Run, tmp_path: Path) -> None:
    evaluate(run, made)
    asked = tmp_path / "test.jsonl"
    asked.write_text("".join(asked.read_text().splitlines(keepends=True)[:4]))
    run("index", "-w", made)
    run("prune", "--source", "bad", "-w", made)
    evaluate(run, made)
    found = seen(made).measured
    assert found is not None and (found.queries, found.decided_since) == (4, 0) and found.gain is not None
    run("evaluate", "-m", "dense", "-k", 2, "--seeds", 1, "--limit", 1, "-w", made)
    assert seen(made).measured == found, "one of four is a trial"


def test_what_changed_is_looked_for_only_since_the_evaluations_that_are_told(
    made: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        evaluate(run, made)
    looked: list[int] = []
    followed = runs.followed
    monkeypatch.setattr(runs, "followed", lambda at, past: looked.append(past.run) or followed(at, past))
    assert seen(made).measured is not None
    assert {*looked} == {1, 3}, "thousands of evaluations take no longer"


def test_other_questions_are_not_compared(made: Path, run: Run) -> None:
    """Another number of shots is another measurement: its own line begins."""
    evaluate(run, made)
    run("prune", "--source", "bad", "-w", made)
    run("evaluate", "-m", "dense", "-k", 3, "--seeds", 1, "-w", made)
    other = seen(made).measured
    assert other is not None and other.k == 3 and other.gain is None and len(other.history) == 1


def test_a_check_of_all_kinds_counts_the_suspects(made: Path, run: Run) -> None:
    run("check", "--kind", "duplicate", "-w", made)
    assert seen(made).suspects is None  # one kind is not all that speaks against a row
    run("check", "-w", made)
    open_before = seen(made).suspects_open
    assert open_before and steps(made)["problems"] == ("open", f"{open_before} suspects")
    run("prune", "--source", "bad", "-w", made)
    pruned = seen(made).suspects_open
    assert pruned is not None and pruned < open_before
    run("undo", "-w", made)
    assert seen(made).suspects_open == open_before


def test_a_row_is_one_problem_and_settled_by_keeping_it(run: Run, tmp_path: Path) -> None:
    asked = [f"Where is the parcel that I ordered from you {when}?" for when in ("on Monday", "in May", "last week")]
    rows = [{"id": f"r{i}", "input": text, "output": "a delay"} for i, text in enumerate([*asked, asked[0]])]
    pool, query, made = tmp_path / "p.jsonl", tmp_path / "v.jsonl", tmp_path / "w"
    pool.write_text("\n".join(map(json.dumps, rows)))
    query.write_text(json.dumps({"input": asked[1], "output": "a delay"}))
    run("index", pool, "--no-encode", "-w", made)
    assert steps(made)["problems"] == ("open", "1 repeat; suspects not looked for")
    run("check", "-w", made)
    assert steps(made)["problems"] == ("open", "1 suspect")
    run("keep", "r3", "-w", made)
    assert steps(made)["problems"] == ("done", "0 of 1 open")
    run("index", pool, "--validation", query, "--no-encode", "-w", made)
    assert steps(made)["problems"] == ("open", "1 repeat, 1 leak; suspects not looked for")  # a query may be a leak
    run("check", "-w", made)
    assert steps(made)["problems"] == ("open", "1 suspect")


def test_labels_that_no_check_can_judge_are_not_called_right(made: Path, run: Run, tmp_path: Path) -> None:
    run("index", tmp_path / "good.jsonl", "--no-encode", "-w", tmp_path / "plain")
    run("check", "-w", tmp_path / "plain")
    assert steps(tmp_path / "plain")["problems"] == ("partial", "none found; labels not checked: no vectors")
    assert "0 rows, labels not checked: no vectors" in run("status", "-w", tmp_path / "plain").out
    run("check", "-w", made)
    assert "not checked" not in run("status", "-w", made).out


def test_an_evaluation_without_demonstrations_measures_no_pool(made: Path, run: Run) -> None:
    zero = ("evaluate", "-m", "zero", "--llm", "offline", "-w", made)
    run(*zero)
    state = seen(made)
    assert state.measured is None and state.next_step == "icl-curate evaluate --split test"
    assert steps(made)["evaluate"] == ("not begun", "not measured")
    evaluate(run, made)
    before = seen(made).measured
    assert before and before.method != "zero"
    run(*zero)
    assert seen(made).measured == before
    run("prune", "--demo", seen_rows(made, "good")[0], "-w", made)
    run(*zero)
    assert steps(made)["evaluate"] == ("open", "measured 1 decision ago")
