"""What a curator would stumble over: keys that arrive before a question, jobs out of sight, names to be remembered."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from factories.patience import PATIENCE
from factories.reviewing import (
    ODD,
    SOURCES,
    go,
    is_safe,
    lines_of,
    make_pool,
    notified,
    session,
    settled,
    text_of,
    until,
)
from icl_curate.cli import app as command_line
from icl_curate.engine.base.progress import CancelToken
from icl_curate.engine.checks import suspects as checks
from icl_curate.engine.checks.suspects import find_suspects
from icl_curate.engine.index.peek import peek
from icl_curate.engine.jobs.folder import EVENTS
from icl_curate.engine.jobs.lock import hold
from icl_curate.engine.store.decisions import decide, history
from icl_curate.engine.store.overview import SuspectShare, overview, suspect_shares
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials import sources
from icl_curate.render.glossary import TERMS, plain
from icl_curate.tui.app import ReviewApp, import_tabs
from icl_curate.tui.completion import CommandLine, NextWord, candidates, is_option, readable
from icl_curate.tui.dialogs import index_form
from icl_curate.tui.dialogs.dialog import Confirm
from icl_curate.tui.dialogs.index_form import IndexForm
from icl_curate.tui.dialogs.start import Start
from icl_curate.tui.live_jobs import LiveJobs, badge, on_leaving
from icl_curate.tui.tabs.overview.rows import heat_map
from icl_curate.tui.tabs.sources.model import measure
from icl_curate.tui.themes import Palette
from icl_curate.tui.widgets import field
from icl_curate.tui.widgets.field import Completion
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input

# Keys wait for a question.


def test_a_key_typed_before_the_question_reaches_it(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = await go(app, pilot, "sources")
        assert tab.current.source == "clean"
        await pilot.press("x", "y")  # y copies in the table
        await until(pilot, lambda: bool(history(Workspace.open(taught))))
        assert "copied" not in notified(app)
        assert history(Workspace.open(taught))[0].targets == ("clean",)
        await until(pilot, lambda: not app.deciding)
        await pilot.press("u", "n", "j")  # an undo asks nothing: the keys after it act in the table
        await until(pilot, lambda: tab.table.cursor == 1)

    session(taught, script)


def test_keys_wait_no_longer_than_the_decision(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = await go(app, pilot, "demos")
        await pilot.press("x", "j", "x", "j")
        await until(pilot, lambda: len(history(Workspace.open(taught))) == 2 and tab.table.cursor == 2)
        tab = await go(app, pilot, "sources")
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("n")
        assert not isinstance(app.screen, Confirm) and len(history(Workspace.open(taught))) == 2

    session(taught, script)


# Jobs out of sight.


def running(folder: Path, number: int, *arguments: str) -> Path:
    """The folder of a job; it runs for as long as its lock is held."""
    path = folder / "jobs" / str(number)
    path.mkdir(parents=True)
    fields = {"arguments": list(arguments), "directory": str(folder), "created": 1.0}
    (path / "job.json").write_text(json.dumps(fields))
    (path / "state.json").write_text(json.dumps({"pid": 1, "started": 1.0}))
    return path


def progress(path: Path, done: int) -> None:
    line = {"time": 2.0, "task": "ask", "done": done, "total": 50, "note": "", "fields": {}}
    with (path / EVENTS).open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_a_running_job_is_seen_on_every_tab_and_on_leaving(taught: Path, tmp_path: Path) -> None:
    path = running(taught, 3, "train", "ranker")
    with hold(path):
        progress(path, 21)

        async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
            await until(pilot, lambda: "⟳ training ranker (job 3) 42%" in text_of(app))
            for tab in ("sources", "evaluate", "preview"):
                await go(app, pilot, tab)
                assert "job 3" in text_of(app).split("\n")[0]
            progress(path, 25)
            await until(pilot, lambda: "50%" in text_of(app).split("\n")[0])
            await pilot.resize_terminal(60, 20)
            assert "⟳50" in text_of(app).split("\n")[0]

        session(taught, script, (130, 40))
        line = on_leaving(taught, taught)
        assert line == "training ranker (job 3) goes on; to see it: icl-curate jobs follow 3"
        assert f"jobs follow 3 -w {taught}" in on_leaving(taught, tmp_path)
    assert on_leaving(taught, taught) == "" and badge(LiveJobs(taught).look()) == ()


def test_the_end_of_a_job_is_told_where_it_is_not_listed(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        path = running(taught, 3, "train", "ranker")
        with hold(path):
            await until(pilot, lambda: "⟳ training ranker (job 3)" in text_of(app))
            assert not notified(app)
        await until(pilot, lambda: "job 3 has ended: J shows the result" in notified(app))

    session(taught, script, (130, 40))


# Help and palette.


def test_the_palette_begins_with_the_open_tab_in_its_own_order(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = await go(app, pilot, "topics")
        palette = Palette(app.screen)
        shown = [hit.text async for hit in palette.discover()]
        own = [f"Topics: {action.label or action.about}" for action in tab.ACTIONS]
        assert shown[: len(own)] == own != sorted(own)

    session(taught, script)


def test_help_explains_the_terms_of_the_tab(taught: Path) -> None:
    for tab in import_tabs():
        assert tab.TERMS and set(tab.TERMS) <= set(TERMS), tab.NAME

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "sources")
        await pilot.press("question_mark")
        shown = " ".join(text_of(app).replace("│", " ").split())
        assert plain("leave-one-out")[:60] in shown

    session(taught, script, (140, 90))


# Completion.


def words(typed: str) -> list[str]:
    return [one.word for one in candidates(SPEC, typed)]


SPEC = typer.main.get_command(command_line)


def test_commands_options_and_values_are_completed_from_the_commands(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queries.jsonl").touch()
    assert words("tra") == ["train"] and words("icl-curate train ra") == ["ranker"]
    assert "--validation-fraction" in words("index a.jsonl --val")
    assert words("index --validation q") == ["queries.jsonl"] and words("index q") == ["queries.jsonl"]
    assert words("evaluate --split v") == ["validation"]
    assert words("evaluate -m bm25,d") == ["bm25,dense", "bm25,dpp"]
    assert "openai:" in words("evaluate --llm ") and words("evaluate --llm=sm") == ["--llm=smollm2"]
    assert words("train ranker --method p") == ["promptpg"], "a choice of Typer's own"
    assert "parquet" in words("export x --format ")
    assert "judge" in words("evaluate --metric ") and words("train ranker --metric ro") == ["rouge-l"]
    assert "--limit" not in words("evaluate --limit 3 --l") and "--map" in words("index --map input=a --m")
    assert all(one.about for one in candidates(SPEC, "evaluate --"))
    assert not candidates(SPEC, "index q", files=False)
    assert is_option(SPEC, "evaluate --seed") and not is_option(SPEC, "evaluate --see")


def test_candidates_that_come_late_do_not_replace_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[NextWord]] = []
    later = threading.Event()

    def slow(root: object, typed: str, *_: object) -> list[NextWord]:
        found = candidates(SPEC, typed)
        assert later.wait(PATIENCE) if typed == "ev" else not later.set()
        return found

    monkeypatch.setattr(field, "candidates", slow)

    async def typing() -> None:
        completion = Completion(SPEC, False, seen.append)
        await asyncio.gather(*(completion.get_suggestion(value) for value in ("ev", "evaluate --see")))

    asyncio.run(typing())
    assert seen == [candidates(SPEC, "evaluate --see")]


def test_dialogs_complete_and_say_what_an_option_means(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        app.command_line = SPEC
        await pilot.press("exclamation_mark", *"evaluate --see")
        await until(pilot, lambda: "Number of seeds" in text_of(app))
        await pilot.press("tab")
        line = app.screen.query_one(Input)
        assert line.value == "evaluate --seeds"
        line.value = ""
        await pilot.press(*"evaluate --seed")
        await until(pilot, lambda: "Number of seeds" in text_of(app))
        await pilot.press("tab")
        assert line.value == "evaluate --seed", "an option as it stands becomes no other one"

    session(taught, script)


def test_tab_completes_what_was_typed_before_the_suggestion_is_displayed(
    taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(spec: CommandLine, line: str, files: bool, workspace: Path) -> list[NextWord]:
        time.sleep(0.2)
        return candidates(spec, line, files, workspace)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        app.command_line = SPEC
        await pilot.press("exclamation_mark", *"evaluate --see", "tab")
        assert app.screen.query_one(Input).value == "evaluate --seeds"

    monkeypatch.setattr("icl_curate.tui.widgets.field.candidates", slowly)
    session(taught, script)


def test_source_weights_are_learned_from_where_they_are_missed(untaught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "sources")
        if "Vote" not in text_of(app):
            await pilot.press("v")
        await until(pilot, lambda: "w shows what that costs" in text_of(app))
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, Start))
        assert app.screen.query_one(Input).value == "train sources"

    session(untaught, script, (80, 24))


def test_a_key_adds_the_metric_to_a_command_that_measures_answers(untaught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        app.command_line = SPEC
        await go(app, pilot, "jobs")
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, Start))
        line = app.screen.query_one(Input)
        line.value = "evaluate -k 2"
        for _ in range(2):  # once is enough
            await pilot.press("ctrl+g")
            await until(pilot, lambda: line.value == "evaluate -k 2 --metric " and "json-f1" in text_of(app))
        line.value = "export out.csv"
        await pilot.press("ctrl+g")
        await until(pilot, lambda: "this command measures no answers" in notified(app))
        assert line.value == "export out.csv"

    session(untaught, script)


# The first index.


def test_the_form_shows_rows_as_they_will_be_read_and_indexes_them(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"utterance": f"text {i} [/b]\x1b[31m", "intent": f"label {i % 3}", "who": f"crowd {i % 2}"} for i in range(40)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = tmp_path / "w"

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("i", *"rows.jsonx")
        form = app.screen
        assert isinstance(form, IndexForm)
        await until(pilot, lambda: "rows.jsonx does not exist" in text_of(app))
        await pilot.press("backspace", "l")
        await until(pilot, lambda: "text 2" in text_of(app))
        assert "⏎ Continue" in lines_of(app)[-1], "what to press is not pushed out of the window by the rows"
        assert is_safe(text_of(app))
        assert "← utterance" in text_of(app) and "← intent" in text_of(app)
        assert [one.source for one in form.found.pool.rows] == ["rows"] * 3
        await pilot.press("down", *"0.2", "down", "down", "down", "down", *"wh", "enter")
        await until(pilot, lambda: "no column 'wh'" in text_of(app))
        await pilot.press("tab")  # completes the column
        await until(pilot, lambda: form.found.ready and "crowd 1" in text_of(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Start))
        shown = app.screen.query_one(Input).value
        assert shown == "index rows.jsonl --validation-fraction 0.2 --map source=who"

    session(folder, script, (80, 24))


def test_a_form_says_at_which_field_it_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "pool.csv").write_text("question,answer\nq0,a\n,b\n")
    (tmp_path / "bad.jsonl").write_text('{"x": 1}\n')
    pool = str(tmp_path / "pool.csv")
    found = index_form.check({"pool": pool, "validation": "0.6", "test": "0.5", "output": "anser"})
    assert set(found.errors) == {"test", "output"} and not found.ready
    assert found.notes["validation"] == "60% of the pool is held out" and found.notes["input"] == "← question"
    assert ["no column 'anser'" in row.reason for row in found.pool.rows] == [True, False]
    found = index_form.check({"pool": pool, "test": str(tmp_path / "bad.jsonl")})
    assert "missing field: input" in found.errors["test"]
    assert index_form.check({"pool": pool}).ready and not index_form.check({}).ready
    typed = {"pool": f"{tmp_path}/*.csv", "validation": "a b.jsonl", "input": "question"}
    assert index_form.command(typed) == f"index '{tmp_path}/*.csv' --validation 'a b.jsonl' --map input=question"


def test_the_form_names_labels_given_as_numbers(tmp_path: Path) -> None:
    (tmp_path / "pool.csv").write_text("input,output\n" + "".join(f"text {i},{i % 2}\n" for i in range(40)))
    typed = {"pool": str(tmp_path / "pool.csv"), "labels": "very bad, good"}
    assert [row.row.output for row in index_form.check(typed).pool.rows] == ["very bad", "good", "very bad"]
    assert index_form.check({"pool": typed["pool"]}).pool.warnings
    assert index_form.command(typed).endswith(" --labels 'very bad,good'")


def test_files_are_offered_before_anything_is_typed(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("b.jsonl", "a.csv", "notes.docx", ".hidden.csv"):
        (tmp_path / name).write_text("input,output\nq,a\n")
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert [one.word for one in readable()] == ["a.csv", "b.jsonl", "data/"]

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("i", "tab")
        await until(pilot, lambda: "a.csv  b.jsonl  data" in text_of(app))
        field = app.screen.query_one("#pool", Input)
        assert field.has_focus and not field.value
        await pilot.press("tab")
        await until(pilot, lambda: field.value == "a.csv")
        assert lines_of(app)[-1].startswith(" ⏎ Continue")

    session(tmp_path / "w", script, (80, 24))


def test_the_form_takes_several_files(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.csv", "c d.csv"):
        (tmp_path / name).write_text(f"ticket,kind\nof {name},x\nmore,y\n")
    (tmp_path / "bad.csv").write_text("some,thing\n1,2\n")
    columns = {"input": "ticket", "output": "kind"}
    for pool in ("a.csv b.csv 'c d.csv'", "a.csv, b.csv,'c d.csv'", "a.csv  ?.csv 'c d.csv'"):
        found = index_form.check({"pool": pool, **columns})
        assert found.ready and found.notes["pool"].endswith("files") and "does not exist" not in str(found.errors)
    assert [row.row.input for row in found.pool.rows] == ["of a.csv", "of a.csv", "of c d.csv"]
    wanted = "index a.csv b.csv 'c d.csv' --map input=ticket --map output=kind"
    assert index_form.command({"pool": "a.csv, b.csv 'c d.csv'", **columns}) == wanted
    assert index_form.command({"pool": "c d.csv"}) == "index 'c d.csv'"
    found = index_form.check({"pool": "a.csv bad.csv", **columns})
    assert "bad.csv: missing field" in found.errors["pool"] and not found.ready
    assert "ticket" in found.pool.columns and "some" in found.pool.columns  # they can be completed


def test_peek_reads_what_index_would_and_stores_nothing(tmp_path: Path) -> None:
    made = make_pool(tmp_path / "w")
    before = sorted(path.name for path in made.path.iterdir())
    found = peek(str(tmp_path / "pool.jsonl"), {"output": "id"})
    assert [(one.row.input, one.row.output, one.source) for one in found.rows if one.row] == [
        (f"question {i} of the clean kind", f"clean-{i}", "clean") for i in range(3)
    ]
    assert found.fields["input"] == "input" and found.columns == ("id", "input", "output", "source")
    assert [one.source for one in peek(str(tmp_path / "pool.jsonl"), {}, "all", 2).rows] == ["all"] * 2
    assert sorted(path.name for path in made.path.iterdir()) == before
    assert overview(made).pool == sum(SOURCES.values())


# Speed.


def test_a_row_is_read_without_a_layout_of_the_screen(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = await go(app, pilot, "demos")
        tab.show_only(source=ODD)  # among them a megabyte in one row
        await settled(pilot)
        layouts = []
        layout = Screen._refresh_layout
        monkeypatch.setattr(
            Screen, "_refresh_layout", lambda *given, **more: layouts.append(1) or layout(*given, **more)
        )
        for _ in range(len(tab.model.rows)):
            await pilot.press("j")
            await settled(pilot)
        assert tab.table.cursor == len(tab.model.rows) - 1
        assert not layouts

    session(taught, script)


def test_the_vote_is_measured_once(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, computed = Workspace.open(taught), []
    curves = sources.curves
    monkeypatch.setattr(sources, "curves", lambda *given: computed.append(given) or curves(*given))
    first = measure(workspace, Settings(), CancelToken())
    assert measure(workspace, Settings(), CancelToken()) == first and len(computed) == 1
    assert measure(workspace, Settings(k=3), CancelToken()).curves.k == 3 and len(computed) == 2
    (taught / sources.VOTE).write_text('{"digest": []')
    assert measure(workspace, Settings(), CancelToken()) == first


def test_waiting_tells_for_how_long(untaught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("J", "n")
        start = app.screen
        assert isinstance(start, Start)
        await until(pilot, lambda: "dry run, 0:0" in text_of(app))
        await pilot.press("escape")
        await asyncio.sleep(0)

    session(untaught, script)


def test_the_first_screen_looks_for_suspects_by_itself(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from icl_curate.tui.tabs.overview import tab as overview_tab

    looked: list[Path] = []
    found = find_suspects

    def find(workspace: Workspace, *more: Any) -> Any:
        looked.append(workspace.path)
        return found(workspace, *more)

    monkeypatch.setattr(checks, "find_suspects", find)
    monkeypatch.setattr(overview_tab, "REST", 0.1)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = await go(app, pilot, "overview")
        await until(pilot, lambda: overview(Workspace.open(taught)).suspects is not None)
        await until(pilot, lambda: "not looked for" not in text_of(app))
        tab.reload()
        await settled(pilot)
        assert len(looked) == 1

    session(taught, script)


def test_the_heat_map_shows_the_worst_sources_and_the_labels_with_the_most_suspects() -> None:
    shares = [
        SuspectShare("good", "a", 90, 0), SuspectShare("good", "b", 10, 1), SuspectShare("bad", "a", 10, 9),
        SuspectShare("bad", "old", 2, 2), SuspectShare("half", "b", 10, 5),
    ]  # fmt: skip
    lines = heat_map(shares, 60, 10).plain.split("\n")
    assert lines[0].split() == ["a", "b", "old"]  # nine, six and two suspects
    assert [line.split()[:2] for line in lines[1:]] == [["bad", "92%"], ["half", "50%"], ["good", "1%"]]
    assert lines[1].split()[2:] == ["█", "90%", "–", "█", "100%"]
    assert lines[2].split()[2:] == ["–", "▓", "50%", "–"] and lines[3].split()[2:] == ["0%", "░", "10%", "–"]
    narrow = heat_map(shares, 24, 3).plain.split("\n")
    assert narrow[0].split() == ["a"] and narrow[-1] == "2 labels more, 1 source more" and len(narrow) == 4


def test_suspects_are_counted_by_source_and_label_until_they_are_decided(support: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(support, tmp_path / "w")
    store = Workspace.open(folder)
    assert [one for one in suspect_shares(store) if one.suspects] == []
    found = find_suspects(store, Settings())
    shares = suspect_shares(store)
    assert sum(one.suspects for one in shares) == len(found.rows) > 0
    assert sum(one.active for one in shares) == overview(store).active
    decide(store, "prune", "source", [worst := max(shares, key=lambda one: one.suspects).source])
    assert worst not in {one.source for one in suspect_shares(store)}

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "overview")
        await until(pilot, lambda: "Suspects by source and label" in text_of(app))

    session(folder, script)


def test_a_check_that_was_left_begins_anew(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from icl_curate.tui.tabs.overview import tab as overview_tab

    (taught / "review.json").write_text(json.dumps({"tab": "sources"}))
    begun: list[CancelToken] = []
    found = find_suspects

    def find(workspace: Workspace, settings: Settings, report: Any, cancel: CancelToken) -> Any:
        begun.append(cancel)
        while len(begun) == 1:  # the first is under way until it is cancelled
            cancel.check()
            time.sleep(0.01)
        return found(workspace, settings, report, cancel)

    monkeypatch.setattr(checks, "find_suspects", find)
    monkeypatch.setattr(overview_tab, "REST", 0.05)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("1")
        await until(pilot, lambda: begun)
        await pilot.press("3")
        await until(pilot, lambda: begun[0].cancelled)
        await pilot.press("1")
        await until(pilot, lambda: overview(Workspace.open(taught)).suspects is not None)
        assert len(begun) == 2

    session(taught, script)
