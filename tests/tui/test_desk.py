"""What a curator would stumble over: keys that arrive before a question, jobs out of sight, names to be remembered."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from factories.reviewing import (
    ODD,
    SOURCES,
    cells_of,
    go,
    lines_of,
    make_pool,
    notified,
    offered,
    session,
    settled,
    text_of,
    until,
)
from icl_curate.cli import app as command_line
from icl_curate.engine.base.progress import SILENT, CancelToken, Monitor
from icl_curate.engine.checks import suspects as checks
from icl_curate.engine.checks.suspects import find_suspects
from icl_curate.engine.index.peek import peek
from icl_curate.engine.jobs.folder import EVENTS
from icl_curate.engine.jobs.follow import LiveJobs
from icl_curate.engine.jobs.lock import hold
from icl_curate.engine.store.browse import by_id
from icl_curate.engine.store.decisions import decide, history
from icl_curate.engine.store.overview import SuspectShare, overview, suspect_shares
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials import sources
from icl_curate.render.glossary import TERMS, plain
from icl_curate.tui.app import ReviewApp, import_tabs
from icl_curate.tui.completion import Hits, candidates, hits, is_option
from icl_curate.tui.dialogs.dialog import Confirm, Pick
from icl_curate.tui.dialogs.help import TOUR, Help, Tour
from icl_curate.tui.dialogs.history import History
from icl_curate.tui.dialogs.jobs import Jobs
from icl_curate.tui.dialogs.start import Start
from icl_curate.tui.live_jobs import badge, on_leaving
from icl_curate.tui.session import load
from icl_curate.tui.tabs.overview.rows import heat_map
from icl_curate.tui.tabs.sources.model import measure
from icl_curate.tui.widgets.field import Field
from icl_curate.tui.widgets.reader import Detail
from icl_curate.tui.widgets.table import LineTable
from textual.dom import DOMNode
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input

pytestmark = pytest.mark.usefixtures("nobody_waits")

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
    path = running(taught, 3, "evaluate")
    with hold(path):
        progress(path, 21)

        async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
            await until(pilot, lambda: "⟳ evaluate (job 3) 42%" in text_of(app))
            for tab in ("sources", "evaluate", "preview"):
                await go(app, pilot, tab)
                assert "job 3" in text_of(app).split("\n")[0]
            progress(path, 25)
            await until(pilot, lambda: "50%" in text_of(app).split("\n")[0])
            await pilot.resize_terminal(60, 20)
            assert "⟳50" in text_of(app).split("\n")[0]

        session(taught, script, (130, 40))
        line = on_leaving(taught, taught)
        assert line == "evaluate (job 3) goes on; to see it: icl-curate jobs follow 3"
        assert f"jobs follow 3 -w {taught}" in on_leaving(taught, tmp_path)
    assert on_leaving(taught, taught) == "" and badge(LiveJobs(taught).look()) == ()


@pytest.mark.parametrize(
    ("code", "told"), [(0, "✓ job 3 has ended"), (2, "✗ job 3 failed"), (130, "✗ job 3 was cancelled")]
)
def test_the_end_of_a_job_is_told_where_it_is_not_listed(taught: Path, code: int, told: str) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        path = running(taught, 3, "train", "ranker")
        with hold(path):
            await until(pilot, lambda: "⟳ training ranker (job 3)" in text_of(app))
            assert not notified(app)
            (path / "state.json").write_text(json.dumps({"pid": 4242, "started": 1.0, "ended": 2.0, "code": code}))
        await until(pilot, lambda: told in lines_of(app)[0])
        assert not notified(app)
        await go(app, pilot, "jobs")
        await until(pilot, lambda: told not in lines_of(app)[0])

    session(taught, script, (130, 40))


@pytest.mark.parametrize(("place", "size", "across"), [
    ("demos", (120, 40), True), ("demos", (80, 24), False), ("problems", (120, 40), False),
    ("preview", (120, 40), False), ("export", (80, 24), False), ("sources", (120, 40), False),
    ("sources", (200, 50), True), ("calibrate", (120, 40), True), ("calibrate", (80, 24), False),
])  # fmt: skip
def test_the_border_of_a_pane_is_moved_and_kept(taught: Path, place: str, size: Any, across: bool) -> None:
    def sizes(app: ReviewApp) -> list[int]:
        tab: Any = app.tab
        part = tab.shown if place == "problems" else tab
        panes = [part.query_one(selector) for selector in part.PANES]
        return [pane.outer_size.width if across else pane.outer_size.height for pane in panes]

    moved: list[list[int]] = []

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, place)
        before = sizes(app)
        await pilot.press("less_than_sign", "less_than_sign", "less_than_sign")
        await settled(pilot)
        more = sizes(app)
        assert more[0] < before[0] and more[1] > before[1]
        await pilot.press(*["greater_than_sign"] * 30)
        await settled(pilot)
        least = sizes(app)
        assert least[0] > more[0] and 0 < least[1] < before[1]
        await pilot.press("less_than_sign")
        await settled(pilot)
        moved.append(sizes(app))
        app.save()

    async def again(app: ReviewApp, pilot: Pilot[None]) -> None:
        await settled(pilot)
        assert sizes(app) == moved[0]

    session(taught, script, size)
    session(taught, again, size)


def test_a_moved_border_leaves_small_panes_as_they_are(tmp_path: Path) -> None:
    workspace = make_pool(tmp_path / "w")

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = await go(app, pilot, "sources")
        pane = tab.query_one("#pruning")
        before = pane.outer_size.height
        app.borders = {"sources": 60}
        tab.on_resize()
        await pilot.press("less_than_sign")
        await settled(pilot)
        assert pane.outer_size.height == before, "nothing is learnt or raced"
        assert app.borders == {"sources": 60}

    session(workspace.path, script, (120, 40))


# Help and palette.


def test_the_finder_begins_with_the_open_tab_in_its_own_order(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        tab = await go(app, pilot, "topics")
        shown = [*await offered(app, pilot)]
        own = [f"Topics: {action.label or action.about}" for action in tab.ACTIONS]
        assert shown[: len(own)] == own != sorted(own)

    session(taught, script)


def test_the_finder_looks_through_the_screen_for_parts_not_for_each_option(
    taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        looks: list[object] = []
        query = DOMNode.query
        monkeypatch.setattr(DOMNode, "query", lambda self, *of: looks.append(of) or query(self, *of))
        shown = await offered(app, pilot)
        assert len(looks) < len(shown) / 4, "355 before, a sixth of a second"

    session(taught, script)


def test_the_finder_shows_keys_narrows_by_letters_and_begins_with_what_was_chosen_last(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        app.command_line = SPEC
        await pilot.press("colon", *"dmsrev")
        await settled(pilot)
        line = next(line for line in lines_of(app) if "Demos: Reverse" in line)
        assert " S " in line, "the key stands at its right end"
        first = cells_of(app.screen.query_one(LineTable), 0)[0]
        assert "".join(first.plain[span.start] for span in first.spans if span.style == "bold") == "DmsRev"
        await pilot.press("enter")
        await settled(pilot)
        demos = app.tab
        assert demos is not None and demos.NAME == "demos" and demos.model.asked.descending  # type: ignore[attr-defined]
        assert next(iter(await offered(app, pilot))) == "Demos: Reverse"
        await pilot.press("colon", *"source clean", "enter")
        await settled(pilot)
        assert demos.model.asked.filter.source == "clean"  # type: ignore[attr-defined]
        for typed, theme in (("theme light", "curate-light"), ("drk cur theme", "curate-dark")):
            await pilot.press("colon", *typed, "enter")
            await settled(pilot)
            assert app.theme == theme
        await pilot.press("colon", *"setting method", "enter")
        await settled(pilot)
        assert app.clipboard.startswith("method") and "copied method" in lines_of(app)[-1]
        app.save()

    session(taught, script)
    assert load(taught).recent[0] == "Setting method"


def test_a_row_is_found_by_its_id_and_shown_in_its_place(taught: Path) -> None:
    made = Workspace.open(taught)
    assert [name for _, name, _ in by_id(made, "ODD-", 3)] == ["odd-0", "odd-1", "odd-2"]
    assert [name for _, name, _ in by_id(made, "sy-1", 2)] == ["noisy-1", "noisy-10"]

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "sources")
        await pilot.press("colon", *"no")
        await settled(pilot)
        assert "Row noisy-1" not in text_of(app)
        await pilot.press(*"isy-1", "enter")  # before they were read
        await until(pilot, lambda: app.tab is not None and app.tab.NAME == "demos")
        demos: Any = app.tab
        await until(pilot, lambda: demos.model.seen is not None and demos.model.seen.demonstration.id == "noisy-1")
        assert demos.table.cursor == SOURCES["clean"] + 1 and demos.table.count == sum(SOURCES.values())
        assert lines_of(app)[1 + 1 + demos.table.cursor + 1].split()[:2] == ["noisy-1", "noisy"]

    session(taught, script, (120, 60))


def test_the_finder_lies_over_dialogs_and_escape_returns_to_them(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "sources")
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: len(history(Workspace.open(taught))) == 1)
        await settled(pilot)
        for key, dialog in (("H", History), ("J", Jobs), ("question_mark", Help), ("w", Start)):
            await go(app, pilot, "sources")
            await pilot.press(key)
            await settled(pilot)
            assert isinstance(app.screen, dialog)
            await pilot.press("colon", *"theme light", "enter")
            await settled(pilot)
            assert isinstance(app.screen, dialog) and app.theme == "curate-light"
            await pilot.press("colon", "escape")
            assert isinstance(app.screen, dialog), "back to it"
            app.theme = "curate-dark"
            await pilot.press("colon", *"go to preview", "enter")
            await until(pilot, lambda: app.tab is not None and app.tab.NAME == "preview")
            assert len(app.screen_stack) == 1
        await pilot.press("H", "colon", *"undo latest", "enter")
        await until(pilot, lambda: history(Workspace.open(taught))[0].action == "undo")
        assert isinstance(app.screen, History), "an action of its own"

    session(taught, script)


def test_what_cannot_be_done_is_grey_and_says_why(tmp_path: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("colon", *"sources: prune")
        await settled(pilot)
        for key in ("enter", "enter"):
            await pilot.press(key)
        assert isinstance(app.screen, Pick) and "no pool yet: i in Overview indexes one" in lines_of(app)[-1]
        await pilot.press("escape")
        assert not (await offered(app, pilot))["Overview: Index"].off

    session(tmp_path / "w", script)


def test_a_letter_left_out_fits_and_a_long_text_takes_no_time() -> None:
    assert hits("", "anything") == Hits(0, [])
    assert hits("cpf", "card_payment_fee") and not hits("fpc", "card_payment_fee")
    whole, inner, apart = (hits("fee", text) for text in ("fee", "coffee", "f e e"))
    assert whole and inner and apart and whole.rank < inner.rank < apart.rank
    both = hits("fee card", "card_payment_fee")
    assert both is not None and both.places == [0, 1, 2, 3, 13, 14, 15]
    assert hits("STAN", "İstanbul") and hits("e" * 12 + "z", "e " * 100_000) is None


# Notices.


def test_one_notice_stands_at_the_end_of_the_last_line_and_an_error_stays(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        app.notify("first")
        app.notify("second [/b]\nand why")
        await settled(pilot)
        assert lines_of(app)[-1].rstrip().endswith("second [/b]  ·  and why") and "first" not in text_of(app)
        app._stood()  # its seconds are over
        await settled(pilot)
        assert "second" not in text_of(app) and "q Quit" in lines_of(app)[-1]
        app.notify("cannot " + "be written to " * 9 + "\nfix: wait", severity="error")
        await settled(pilot)
        await pilot.press("j")
        app._stood()
        await settled(pilot)
        assert [line.strip() for line in lines_of(app)[-2:]] == ["written to be written to", "fix: wait"]
        await pilot.press("question_mark")
        await settled(pilot)
        assert "fix: wait" not in text_of(app) and lines_of(app)[-1].rstrip() == " esc Close  : Find"
        app.notify("told in a dialog")
        await settled(pilot)
        assert "told in a dialog" in lines_of(app)[-1]

    session(taught, script, (110, 30))


def test_of_a_long_notice_the_end_stays(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        app.notify("refused " * 200 + "\nstart the server, then go on", severity="error")
        await settled(pilot)
        assert [line.strip() for line in lines_of(app)[-2:]] == ["…", "start the server, then go on"]
        app.notify("refused " * 200 + "\n" + "mend " * 200, severity="error")
        await settled(pilot)
        *_, first, second, last = [line.strip() for line in lines_of(app)]
        assert all(line.startswith("mend") for line in (first, second, last))

    session(taught, script, (100, 30))


def test_in_a_narrow_terminal_a_notice_covers_keys_until_the_next_one(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        for severity, stays in (("information", False), ("warning", True)):
            app.notify("pruned\nmuch and more " * 5, severity=severity)
            await settled(pilot)
            assert "? Help" not in lines_of(app)[-1]
            await pilot.press("j")
            await settled(pilot)
            assert ("? Help" in lines_of(app)[-1]) is not stays

    session(taught, script, (80, 24))


@pytest.mark.parametrize(("place", "key"), [("problems", "a Mark all"), ("sources", "w Learn")])
def test_a_narrow_terminal_shows_the_keys_that_begin_the_work(taught: Path, place: str, key: str) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, place)
        assert f" {key} " in lines_of(app)[-1]

    session(taught, script, (80, 24))


# Keys that are the same in all lists.


def test_a_search_says_how_many_of_all_it_found(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "demos")
        await pilot.press("slash", *"the noisy")
        await settled(pilot)
        assert "24 of 64 rows" in lines_of(app)[1]
        await pilot.press("enter", "f", *"source", "enter", *"noisy", "enter")
        await settled(pilot)
        assert "24 rows" in lines_of(app)[1], "of the source alone it is not known yet"

    session(taught, script)


def test_a_range_is_marked_from_where_it_began_to_the_cursor(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        demos: Any = await go(app, pilot, "demos")
        await pilot.press("j", "V", "j", "j")
        assert [line[0] for line in lines_of(app)[3:8]] == [" ", "●", "●", "●", " "] and not demos.model.marks.count
        await pilot.press("space")
        assert list(demos.model.marks.rows) == [1, 2, 3] and "3 marked" in text_of(app)
        await pilot.press("g", "V", "j", "V")  # a second time it is given up
        assert list(demos.model.marks.rows) == [1, 2, 3]
        await pilot.press("c")
        await settled(pilot)  # other rows: a range is over
        await pilot.press("G", "V", "k", "x")  # a decision is about the range
        await until(pilot, lambda: len(history(Workspace.open(taught))) == 1)
        assert len(history(Workspace.open(taught))[0].targets) == 2

    session(taught, script)


def test_a_decision_is_repeated_row_by_row(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        demos: Any = await go(app, pilot, "demos")
        await pilot.press("full_stop")
        assert "no decision on a row to repeat yet" in notified(app)
        await pilot.press("x")
        await settled(pilot)
        await pilot.press("j", "full_stop", "full_stop")
        await settled(pilot)
        assert list(demos.model.known.pruned) == [0, 1, 2] and demos.table.cursor == 3
        await pilot.press("G", "e")
        await settled(pilot)
        await pilot.press("ctrl+k", *"mended", "ctrl+s")  # its output has hidden characters: it is edited in an area
        await settled(pilot)
        await pilot.press("k", "full_stop")
        await settled(pilot)
        await pilot.press("u", "u", "u")
        await settled(pilot)
        assert list(demos.model.known.pruned) == [0, 1]

    session(taught, script)
    newest = [entry for entry in history(Workspace.open(taught)) if entry.scope != "batch"]
    assert [entry.action for entry in newest] == ["relabel", "relabel", "prune", "prune", "prune"]
    assert newest[0].by == newest[1].by == {"→ mended": 1} and newest[0].targets != newest[1].targets


def test_what_has_the_focus_is_shown_alone_and_commands_are_copied(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        demos: Any = await go(app, pilot, "demos")
        before = text_of(app)
        await pilot.press("enter", "z")
        await settled(pilot)
        assert app.screen.maximized is demos.query_one(Detail) and "1 Overview" not in text_of(app)
        assert "output" in text_of(app) and "Help" in lines_of(app)[-1]
        await pilot.press("z", "escape")
        await settled(pilot)
        assert text_of(app) == before
        await pilot.press("z", "3")
        await settled(pilot)
        assert app.screen.maximized is None and app.tab is not None and app.tab.NAME == "sources"
        await pilot.press("Y")
        assert app.clipboard == "icl-curate sources"
        demos.show_only(source="odd one", pruned=True)
        await go(app, pilot, "demos")
        await pilot.press("Y")
        await settled(pilot)
        assert app.clipboard == "icl-curate demos --pruned --source 'odd one'"
        assert "copied icl-curate demos" in lines_of(app)[-1]

    session(taught, script, (80, 24))


def test_a_copied_command_shows_the_same_rows_or_there_is_none(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        demos: Any = await go(app, pilot, "demos")
        await pilot.press("v", "Y")
        await settled(pilot)
        assert app.clipboard == "icl-curate demos --active"
        demos.show_only(duplicates=True)
        await settled(pilot)
        await pilot.press("Y")
        assert app.clipboard == "icl-curate demos --duplicates"
        for filtered in (lambda: demos.show_only(label="answer 1"), lambda: demos.action_change("next_only")):
            filtered()
            app.notices.clear()
            await settled(pilot)
            await pilot.press("Y")
            await settled(pilot)
            assert "no command shows this" in notified(app)
        app.notices.clear()
        await go(app, pilot, "calibrate")
        await pilot.press("Y")
        await settled(pilot)
        assert "no command shows this" in notified(app) and app.clipboard == "icl-curate demos --duplicates"

    session(taught, script)


def test_the_first_start_shows_the_screen_in_six_lines_and_any_key_goes_on(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await settled(pilot)
        assert isinstance(app.screen, Tour) and all(about in text_of(app) for _, about in TOUR) and len(TOUR) == 6
        await pilot.press("3")
        await settled(pilot)
        assert len(app.screen_stack) == 1 and app.tab is not None and app.tab.NAME == "sources"
        await pilot.press("f2", "enter", "enter")
        await settled(pilot)
        assert len(app.screen_stack) == 1
        app.save()
        again = ReviewApp(taught, tour=True)
        assert not again._tour

    session(taught, script, tour=True)


def test_a_term_is_explained_where_it_is_met(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("colon", *"term leave-one", "enter")
        await settled(pilot)
        assert plain("leave-one-out")[:60] in " ".join(text_of(app).split())

    session(taught, script)


def test_words_of_a_column_are_explained_in_the_help_of_its_place(taught: Path) -> None:
    words = {"sources": "partly: some of its rows are pruned", "evaluate": "easy, hard: accuracy on queries"}

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        for place, told in words.items():
            await go(app, pilot, place)
            await pilot.press("question_mark")
            await settled(pilot)
            assert told in " ".join(text_of(app).replace("│", " ").split())
            await pilot.press("escape")

    session(taught, script, (80, 24))


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


def test_dialogs_complete_and_say_what_an_option_means(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        app.command_line = SPEC
        await pilot.press("exclamation_mark", *"evaluate --spl")
        line = app.screen.query_one(Field)
        await pilot.press("tab")
        await until(pilot, lambda: line.value == "evaluate --split")
        line.put("evaluate --seed")
        await pilot.press("tab")
        await until(pilot, lambda: "no match" in notified(app))
        assert line.value == "evaluate --seed", "an option as it stands becomes no other one"
        line.put("evaluate --")
        await pilot.press("tab")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await pilot.press(*"number seeds")
        assert "Number of seeds" in text_of(app)
        await pilot.press("enter")
        await settled(pilot)
        assert line.value == "evaluate --seeds"

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
        await pilot.press("ctrl+g")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await pilot.press(*"json", "enter")
        await settled(pilot)
        await pilot.press("ctrl+g")  # once is enough
        assert line.value.startswith("evaluate -k 2 --metric json") and line.value.count("--metric") == 1
        line.value = "export out.csv"
        await pilot.press("ctrl+g")
        await until(pilot, lambda: "this command measures no answers" in notified(app))
        assert line.value == "export out.csv"

    session(untaught, script)


# The first index: see test_first.


def test_peek_reads_what_index_would_and_stores_nothing(tmp_path: Path) -> None:
    made = make_pool(tmp_path / "w")
    before = sorted(path.name for path in made.path.iterdir())
    found = peek(str(tmp_path / "pool.jsonl"), {"output": "id"})
    assert [(one.row.input, one.row.output, one.source) for one in found.rows if one.row] == [
        (f"question {i} of the clean kind", f"clean-{i}", "clean") for i in range(3)
    ]
    told = found.understood
    assert told.fields["input"] == "input" and told.columns == ("id", "input", "output", "source")
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
    first = measure(workspace, Settings(), SILENT)
    assert measure(workspace, Settings(), SILENT) == first and len(computed) == 1
    assert measure(workspace, Settings(k=3), SILENT).curves.k == 3 and len(computed) == 2
    (taught / sources.VOTE).write_text('{"digest": []')
    assert measure(workspace, Settings(), SILENT) == first


def test_waiting_tells_for_how_long(untaught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("J", "n")
        start = app.screen
        assert isinstance(start, Start)
        await until(pilot, lambda: "pricing … 0:0" in text_of(app))
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
        await until(pilot, lambda: "2 looks for them" not in text_of(app))
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

    def find(workspace: Workspace, settings: Settings, monitor: Monitor) -> Any:
        begun.append(monitor.cancel)
        while len(begun) == 1:  # the first is under way until it is cancelled
            monitor.check()
            time.sleep(0.01)
        return found(workspace, settings, monitor)

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
