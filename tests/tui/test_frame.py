"""The frame of ``review``: tabs, actions, keys, memory, hostile text, small terminals, other processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from factories.patience import PATIENCE
from factories.reviewing import (
    HOSTILE,
    cells_of,
    go,
    lines_of,
    named,
    notified,
    numbers,
    offered,
    session,
    settled,
    text_of,
    until,
)
from icl_curate.engine.base.errors import Cancelled, LockedError
from icl_curate.engine.store import locks
from icl_curate.engine.store import workspace as store
from icl_curate.engine.store.decisions import decide, history
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.actions import keymap
from icl_curate.tui.app import FRAME, TABS, ReviewApp, import_tabs
from icl_curate.tui.dialogs.dialog import Confirm
from icl_curate.tui.dialogs.help import Help
from icl_curate.tui.tab import Tab
from icl_curate.tui.widgets.bars import KeyBar
from icl_curate.tui.widgets.reader import Detail
from icl_curate.tui.widgets.table import LineTable
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input


def test_every_tab_is_what_the_frame_says_it_is() -> None:
    tabs = import_tabs()
    assert [tab.NAME for tab in tabs] == list(TABS)
    assert [tab.TITLE for tab in tabs] == [name.capitalize() for name in TABS]


def test_every_action_has_its_method_its_own_name_and_its_own_keys() -> None:
    tabs = import_tabs()
    parts: list[Any] = [ReviewApp, LineTable, Detail, *tabs, *(part for tab in tabs for part in tab.PARTS)]
    names = Counter(action.name for part in parts for action in part.ACTIONS)
    assert [name for name, count in names.items() if count > 1] == []
    for part in parts:
        for action in part.ACTIONS:
            assert callable(getattr(part, f"action_{action.run.partition('(')[0]}", None)), action.name
    framed = [key for action in FRAME for key in action.keys.split(",")]
    for owner in parts[3:]:
        keys = [key for action in owner.ACTIONS for key in action.keys.split(",")]
        assert [key for key, count in Counter(keys + framed).items() if count > 1] == [], owner.TITLE


def test_tabs_are_walked_by_keys_and_by_mouse(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        for i, name in enumerate(TABS, 1):
            await pilot.press(str(i))
            assert app.tab is not None and name == app.tab.NAME
            assert app.focused is not None and app.tab in app.focused.ancestors
            await settled(pilot)
        await pilot.press("right_square_bracket")
        assert app.tab.NAME == "overview"
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert app.tab.NAME == "topics"
        await pilot.click("TabBar", offset=(lines_of(app)[0].index("Sources") + 1, 0))
        assert app.tab.NAME == "sources"

    session(taught, script)


def test_a_tab_is_mounted_once_at_its_first_visit(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        def mounted() -> list[str]:
            return [tab.NAME for tab in app.tabs if tab.query("*")]

        assert mounted() == ["overview"]
        sources = await go(app, pilot, "sources")
        assert mounted() == ["overview", "sources"]
        table = sources.table
        await go(app, pilot, "overview")
        await go(app, pilot, "sources")
        assert sources.query_one(LineTable) is table and app.focused is table
        demos, commands = named(app, "demos"), await offered(app, pilot)
        assert not demos.model.asked.descending
        await commands["Demos: Reverse"].value[1]()
        assert mounted() == ["overview", "sources", "demos"]
        assert app.tab is demos and demos.model.asked.descending

    session(taught, script)


def test_a_key_right_after_that_of_a_tab_reaches_it_also_on_its_first_visit(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        sources, demos = named(app, "sources"), named(app, "demos")
        assert sources.model.descending and not demos.model.asked.descending
        for key in ("3", "S", "6", "S"):  # nobody waits for anything
            app.simulate_key(key)
        await settled(pilot)
        assert app.tab is demos and demos.model.asked.descending and not sources.model.descending

    session(taught, script)


@pytest.mark.parametrize(("tab", "key"), [("overview", "j"), ("sources", "w"), ("evaluate", "n")])
def test_a_key_before_the_tab_was_read_does_nothing(
    taught: Path, tab: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tab, "reload", lambda self: None)

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, tab)
        await pilot.press(key)
        await settled(pilot)
        assert app.fault is None and len(app.screen_stack) == 1
        assert notified(app) == ("" if tab == "overview" else "still reading: nothing was done")

    session(taught, script)


def test_of_visits_at_the_same_time_the_last_one_counts(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        names = "preview", "demos", "demos", "export"
        visited = await asyncio.gather(*(app.visit(name) for name in names))
        assert [tab.NAME for tab in visited] == list(names)
        await settled(pilot)
        shown = [tab.NAME for tab in app.tabs if tab.display]
        assert app.tab is not None and [app.tab.NAME] == shown == ["export"]
        assert app.focused is not None and app.tab in app.focused.ancestors

    session(taught, script)


def test_a_key_of_the_footer_is_pressed_by_the_mouse_and_those_that_do_not_fit_are_left_out(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "demos")
        footer = lines_of(app)[-1]
        own = " / Search  f Filter  space Mark  x Prune  r Keep  e Relabel  m Misleading"
        shown = f"{own}  u Undo  ? Help  : Find  q Quit"
        assert footer.rstrip() == shown
        bar = app.query_one(KeyBar)
        await pilot.hover("KeyBar", offset=(footer.index("x Prune") + 2, 0))
        assert "Prune the marked rows" in str(bar.tooltip)
        await pilot.click("KeyBar", offset=(footer.index("? Help") - 1, 0))
        assert isinstance(app.screen, Help)
        await pilot.pause()
        assert lines_of(app)[-1].rstrip() == " esc Close  : Find"  # the keys of the tab do nothing now
        await pilot.press("escape")
        await pilot.click("KeyBar", offset=(footer.index("q Quit") + len("q Quit") + 2, 0))
        assert app.is_running and app.screen is bar.screen  # beyond the last key there is none
        await pilot.resize_terminal(60, 20)
        assert lines_of(app)[-1].rstrip() == " / Search  f Filter  space Mark  x Prune  u  ? Help  :  q"
        await pilot.press("slash")
        assert lines_of(app)[-1].rstrip() == " esc Back  f1 Help"

    session(taught, script)


def test_help_tells_all_actions_of_the_focused_part_and_the_palette_carries_them_out(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        tab = await go(app, pilot, "sources")
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, Help)
        told = [action for _, _, actions in app.screen._sections for action in actions]
        assert set(told) == {*LineTable.ACTIONS, *tab.ACTIONS, *FRAME}
        assert [title for title, _, _ in app.screen._sections] == ["Sources", "Table", "Everywhere"]
        await pilot.press("escape")
        commands = await offered(app, pilot)
        assert {f"{r.TITLE}: {a.label or a.about}" for r in app.tabs for a in r.ACTIONS} <= set(commands)
        assert commands["Sources: Prune"].note == "x"
        await go(app, pilot, "export")
        await pilot.press("colon")
        await pilot.press(*"Sources: Reverse")
        await until(pilot, lambda: "Reverse the sort order" in text_of(app))
        before = tab.model.descending
        await pilot.press("enter")
        await until(pilot, lambda: tab.model.descending is not before)
        assert app.tab is tab

    session(taught, script)


def test_keys_can_be_changed_and_mistakes_in_the_file_are_told(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = taught.parent / "config.toml"
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(config))
    (taught.parent / "keys.toml").write_text('"sources.reverse" = "z"\n[sources]\nprun = "p"\ntune = 3\n')

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab = await go(app, pilot, "sources")
        before = tab.model.descending
        await pilot.press("S")
        assert tab.model.descending is before
        await pilot.press("z")
        assert tab.model.descending is not before
        assert "no action 'sources.prun'; did you mean 'sources.prune'?" in notified(app)
        assert "sources.tune must be a text" in notified(app)

    session(taught, script)
    assert keymap([FRAME], taught / "none.toml") == ({}, [])
    (taught / "broken.toml").write_text("a = ")
    assert keymap([FRAME], taught / "broken.toml")[1]


@pytest.mark.parametrize(
    ("name", "near"),
    [("ctrl-x", "; did you mean 'ctrl+x'?"), ("Delete", "; did you mean 'delete'?"), ("nokey", ""), ("esc", "; did")],
)
def test_a_key_that_there_is_not_is_told_and_the_action_keeps_its_own(tmp_path: Path, name: str, near: str) -> None:
    (file := tmp_path / "keys.toml").write_text(f'[frame]\nleave = "{name}"\nundo = "?, ctrl+x,alt+plus,+,ü,f5"\n')
    keys, problems = keymap([[action for action in FRAME if action.name in ("frame.leave", "frame.undo")]], file)
    assert keys == {"frame.undo": "question_mark,ctrl+x,alt+plus,plus,ü,f5"}
    assert len(problems) == 1 and f"frame.leave: there is no key '{name}'{near}" in problems[0]


def test_a_key_that_no_terminal_sends_is_told_with_what_it_types(tmp_path: Path) -> None:
    (file := tmp_path / "keys.toml").write_text(
        '[frame]\nleave = "shift+x"\nundo = "X,shift+tab,shift+f3,alt+shift+x"\n'
    )
    keys, problems = keymap([[action for action in FRAME if action.name in ("frame.leave", "frame.undo")]], file)
    assert keys == {"frame.undo": "X,shift+tab,shift+f3,alt+shift+x"}
    assert problems == [f"{file}: frame.leave: no terminal sends 'shift+x': write what it types, 'X'"]
    file.write_text('[frame]\nleave = "shift+1"\n')
    _, (problem,) = keymap([[action for action in FRAME if action.name == "frame.leave"]], file)
    assert problem.endswith("no terminal sends 'shift+1': write what it types")


def test_a_key_of_another_action_of_the_tab_or_the_frame_is_told(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(taught.parent / "config.toml"))
    (taught.parent / "keys.toml").write_text(
        '[sources]\nreverse = "x,q,j"\n[suspects]\nprune = "t"\n[go]\nsources = "5"\nexport = "3"\n'
    )

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "sources")
        told = notified(app)
        assert "'x' of sources.reverse is also the key of sources.prune" in told
        assert "'q' of sources.reverse is also the key of frame.leave" in told
        assert "'j' of sources.reverse is also the key of table.down" in told
        assert "'t' of suspects.prune is also the key of problems.verify" in told
        assert told.count("is also the key of") == 4, "two that change places do not meet"

    session(taught, script)


def test_a_session_is_remembered(taught: Path) -> None:
    async def first(app: ReviewApp, pilot: Any) -> None:
        tab = await go(app, pilot, "demos")
        tab.model.sort_by("input")
        tab.model.reverse()
        tab.action_change("next_state")
        await settled(pilot)
        app.theme = "nord"
        await pilot.press("q")

    async def second(app: ReviewApp, pilot: Any) -> None:
        assert app.theme == "nord"
        tab: Any = app.tab
        assert tab.NAME == "demos"
        asked = tab.model.asked
        assert (asked.sort, asked.descending, asked.filter.pruned) == ("input", True, False)
        assert tab.model.rows.size

    session(taught, first)
    session(taught, second)


def test_the_state_of_a_tab_that_is_not_visited_is_kept(taught: Path) -> None:
    states = {"calibrate": {"filter": "open", "row": 3}, "topics": {"sort": "topic"}, "demos": {"sort": "input"}}

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "export")
        await pilot.press("q")

    (taught / "review.json").write_text(json.dumps({"tab": "overview", "tabs": states}))
    session(taught, script)
    kept = json.loads((taught / "review.json").read_text())
    assert kept["tab"] == "export"
    assert {name: {key: kept["tabs"][name][key] for key in state} for name, state in states.items()} == states


def test_what_changed_is_remembered_before_the_end(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "demos")
        await pilot.press("s")

        def kept() -> Any:
            told = json.loads((taught / "review.json").read_text()) if (taught / "review.json").exists() else {}
            return told.get("tab"), told.get("tabs", {}).get("demos", {}).get("sort")

        await until(pilot, lambda: kept()[0] == "demos")
        await until(pilot, lambda: kept()[1] != "row")
        assert kept() == ("demos", "effect")

    session(taught, script)


@pytest.mark.parametrize(
    "kept",
    [
        "",
        "{",
        "[]",
        '{"tab": 3, "theme": [], "tabs": {"demos": {"split": "x", "sort": 1, "pruned": "y"}, "sources": 7}}',
    ],
)
def test_a_damaged_memory_counts_as_none(taught: Path, kept: str) -> None:
    (taught / "review.json").write_text(kept)

    async def script(app: ReviewApp, pilot: Any) -> None:
        assert app.tab is not None and app.tab.NAME == "overview"
        demos: Any = await go(app, pilot, "demos")
        assert demos.model.asked.sort == "row" and demos.model.rows.size
        await until(pilot, lambda: '"tab": "demos"' in (taught / "review.json").read_text())  # every few seconds

    session(taught, script)
    assert json.loads((taught / "review.json").read_text())["tab"] == "demos"


def test_no_byte_of_the_pool_reaches_the_terminal_raw_or_as_markup(taught: Path) -> None:
    def safe(app: ReviewApp) -> None:
        for line in lines_of(app):
            raw = [c for c in line if unicodedata.category(c) in {"Cc", "Zl", "Zp"} or c in "\u202e\u2066\u200f\u061c"]
            assert not raw, repr(line)

    async def script(app: ReviewApp, pilot: Any) -> None:
        for tab in ("overview", "sources"):
            await go(app, pilot, tab)
            safe(app)
        demos = await go(app, pilot, "demos")
        await pilot.press("G", "enter")
        seen = ""
        for _ in HOSTILE:
            await settled(pilot)
            safe(app)
            seen += text_of(app)
            await pilot.press("G")
            await pilot.pause()
            safe(app)
            seen += text_of(app)
            await pilot.press("escape", "k", "enter")
        assert "[/foo]" in seen and "[bold]not bold" in seen and "more characters" in seen and "␛[31mred" in seen
        await pilot.press("escape")
        await pilot.press("f", "enter")
        await settled(pilot)
        safe(app)
        await pilot.press("o", "d", "d", "enter")
        await settled(pilot)
        safe(app)
        assert len(demos.model.rows) == len(HOSTILE)
        await pilot.press("a", "x")
        await settled(pilot)
        safe(app)
        await pilot.press("H")
        await settled(pilot)
        safe(app)

    session(taught, script)


@pytest.mark.parametrize("size", [(1, 1), (40, 12), (200, 60)])
def test_any_terminal_size_will_do(taught: Path, size: tuple[int, int]) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        for tab in ("overview", "sources", "topics"):
            await go(app, pilot, tab)
            await pilot.press("j")
        demos = await go(app, pilot, "demos")
        await pilot.press("question_mark", "escape", "f", "escape", "slash", "q", "escape", "enter", "escape")
        if size >= (40, 12):
            table = demos.query_one(LineTable)
            assert table.size.height >= 6
            await pilot.resize_terminal(33, 9)
            await settled(pilot)

    session(taught, script, size)


def test_what_the_command_line_changes_meanwhile_is_seen(taught: Path, run: Run) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        tab: Any = await go(app, pilot, "sources")
        assert all(s.kept for s in tab.model.sources)
        done = run("prune", "--source", "noisy", "-w", taught)
        assert done.code == 0, done.err
        await until(pilot, lambda: [s.source for s in tab.model.sources if not s.kept] == ["noisy"])
        await pilot.press("u")
        await until(pilot, lambda: isinstance(app.screen, Confirm))  # it is another's
        await pilot.press("y")
        await until(pilot, lambda: all(s.kept for s in tab.model.sources))

    session(taught, script)


HOLD = """
import sys, duckdb
con = duckdb.connect(sys.argv[1]); print("held", flush=True); sys.stdin.readline()
"""


def test_a_locked_workspace_is_told_and_tried_again(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PATIENCE", 0.2)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(taught / store.FILE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout and holder.stdin and holder.stdout.readline() == "held\n"

    async def script(app: ReviewApp, pilot: Any) -> None:
        await until(pilot, lambda: f"workspace is open in PID {holder.pid}" in text_of(app))
        await pilot.press("u")
        await until(pilot, lambda: any("open in PID" in n.message for n in app.notices))
        holder.stdin.close()  # type: ignore[union-attr]
        holder.wait()
        tab: Any = app.tab
        await until(pilot, lambda: bool(tab.step))
        await until(pilot, lambda: "open in PID" not in lines_of(app)[1])

    session(taught, script)


def test_what_a_key_began_is_not_said_to_be_tried_again(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        assert app.tab is not None
        app.tab.failed("start", LockedError("workspace is open in PID 1"))
        await settled(pilot)
        assert "open in PID 1" in notified(app) and "trying again" not in text_of(app)

    session(taught, script)


def test_who_is_waited_for_is_said_and_leaving_does_not_wait(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(taught / store.FILE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout and holder.stdin and holder.stdout.readline() == "held\n"
    given_up: list[float] = []
    monkeypatch.setattr(store, "PATIENCE", PATIENCE)

    async def script() -> None:
        app = ReviewApp(taught)

        def waits(what: str, waited: float) -> None:
            try:
                app.waits(what, waited)
            except Cancelled:
                given_up.append(waited)
                raise

        monkeypatch.setattr(locks, "on_wait", waits)
        async with app.run_test() as pilot:
            await until(pilot, lambda: any(f"open in PID {holder.pid}" in n.message for n in app.notices))
            await pilot.press("question_mark")  # keys are taken meanwhile
            await until(pilot, lambda: len(app.screen_stack) == 2)

    try:
        asyncio.run(script())  # ends the app while the tab still waits
        assert holder.poll() is None
        assert given_up and max(given_up) < store.PATIENCE
    finally:
        holder.stdin.close()
        holder.wait()


def test_an_empty_workspace_says_what_to_run_in_every_tab(tmp_path: Path) -> None:
    Workspace.create(tmp_path)

    async def script(app: ReviewApp, pilot: Any) -> None:
        for tab in TABS:
            tab = await go(app, pilot, tab)
            assert tab.nothing is not None
            if tab.query("#first"):  # it lists files instead
                continue
            assert f"$ {tab.nothing.command}" in text_of(app).replace("\n", "")
            await pilot.press("y")
            assert app.clipboard == tab.nothing.command

    session(tmp_path, script)


def test_decisions_keep_their_order_however_fast_the_keys(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        demos: Any = await go(app, pilot, "demos")
        await pilot.press("x", "j", "x", "j", "x", "u")
        await until(pilot, lambda: len(demos.model.known.pruned) == 2)
        await settled(pilot)
        assert demos.model.known.pruned.tolist() == demos.model.rows[:2].tolist()
        await pilot.press("u", "u")
        await until(pilot, lambda: len(demos.model.known.pruned) == 0)
        await pilot.press("u")
        await until(pilot, lambda: "no decision left" in notified(app))

    session(taught, script)


def test_history_lists_decisions_and_undoes_them(taught: Path) -> None:
    made = Workspace.open(taught)

    def active() -> set[str]:
        with made.read() as con:
            return {name for (name,) in con.execute("SELECT id FROM active").fetchall()}

    def decided() -> list[tuple[str, bool]]:
        return [(entry.action, entry.undone) for entry in history(made)]

    everything = active()
    noisy = {name for name in numbers(made) if name.startswith("noisy-")}
    decide(made, "prune", "source", ["noisy"], "too [/noisy]")
    decide(made, "keep", "demonstration", ["noisy-1"])
    assert active() == everything - noisy | {"noisy-1"}

    async def script(app: ReviewApp, pilot: Any) -> None:
        await pilot.press("H")
        await until(pilot, lambda: "too [/noisy]" in text_of(app))
        await pilot.press("u")
        table = app.screen.query_one(LineTable)
        await until(pilot, lambda: table.count == 3)
        assert decided() == [("undo", False), ("keep", True), ("prune", False)]
        assert active() == everything - noisy
        await pilot.press("u")
        await until(pilot, lambda: table.count == 4)
        assert decided() == [("undo", False), ("undo", False), ("keep", True), ("prune", True)]
        assert active() == everything
        await pilot.press("escape")
        await settled(pilot)

    session(taught, script)


def test_history_has_the_notices_of_the_session(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        app.notify("first [/b]")
        app.notify("cannot " + "be written to " * 9 + "at last\nfix: wait", severity="error")
        await settled(pilot)
        await go(app, pilot, "sources")
        await pilot.press("H")
        await settled(pilot)
        assert "Decisions 0  Notices 2" in " ".join(text_of(app).split("│")[1:]) and "first [/b]" not in text_of(app)
        await pilot.press("tab")
        await settled(pilot)
        history: Any = app.screen
        lines = [" ".join(map(str, cells_of(history.notices, at))) for at in range(2)]
        assert [re.sub(r"^\d\d:\d\d:\d\d ", "", line)[:12] for line in lines] == ["cannot be wr", "first [/b]"]
        assert "at last" in text_of(app) and "fix: wait" in text_of(app), "the one under the cursor is whole"
        await pilot.press("u")
        await until(pilot, lambda: "no decision left" in text_of(app) and history.notices.count == 3)
        await pilot.press("tab")
        assert history.table.has_focus and not history.query_one("#whole").display
        await pilot.press("escape")
        assert len(app.screen_stack) == 1

    session(taught, script, (80, 24))


def test_the_first_paint_needs_neither_duckdb_nor_numpy() -> None:
    probe = "import sys, icl_curate.tui.app; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"duckdb", "numpy", "pyarrow", "torch", "openai"}
    probe = "import sys, icl_curate.tui.app as a; a.import_tabs(); print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    heavy = {"torch", "openai", "transformers", "sentence_transformers", "scipy", "numba"}
    assert not set(done.stdout.split()) & heavy


def test_off_a_terminal_it_ends_with_2_and_names_the_commands(taught: Path, run: Run) -> None:
    done = run("review", "-w", taught, timeout=PATIENCE)
    assert done.code == 2
    assert "needs a terminal" in done.err and "icl-curate status" in done.err and "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"TERM": "dumb"}, b"not TERM=dumb"),
        ({"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, b"fix: PYTHONUTF8=1"),
    ],
)
def test_a_terminal_that_cannot_show_it_is_refused(taught: Path, setting: dict[str, str], told: bytes) -> None:
    terminal = Terminal(taught, environment=setting)
    assert terminal.ended() == 2
    assert told in terminal.seen and b"\x1b[?1049h" not in terminal.seen


@pytest.mark.parametrize("no_color", [True, False])
def test_without_colours_no_theme_of_the_terminals_own_is_used(
    taught: Path, monkeypatch: pytest.MonkeyPatch, no_color: bool
) -> None:
    (taught / "review.json").write_text(json.dumps({"theme": "ansi-dark"}))
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")

    async def script(app: ReviewApp, pilot: Any) -> None:
        assert app.theme == ("curate-dark" if no_color else "ansi-dark")
        assert ("ansi-dark is not available" in notified(app)) == no_color
        assert any(theme.ansi for theme in app.available_themes.values()) != no_color

    session(taught, script)


class Terminal:
    """``icl-curate review`` on a pseudo-terminal of its own; its process does ``first`` before anything else."""

    def __init__(self, folder: Path, first: str = "", environment: Mapping[str, str] | None = None) -> None:
        pty = pytest.importorskip("pty")
        if folder.is_dir():
            (folder / "review.json").write_text('{"toured": true}')
        self.pid, self.fd = pty.fork()
        if self.pid == 0:  # pragma: no cover
            os.environ |= {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"} | dict(environment or {})
            code = f"{first}\nfrom icl_curate.cli import main; main()"
            os.execv(sys.executable, [sys.executable, "-c", code, "review", "-w", str(folder)])
        self.seen = b""

    def wait_for(self, text: bytes, seconds: float = PATIENCE) -> None:
        import select

        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, self.seen[-2000:]
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 1 << 16)
                except OSError:
                    break

    def ended(self) -> int:
        """The exit code; what was still to be read is in ``seen``."""
        while True:
            try:
                found = os.read(self.fd, 1 << 16)
            except OSError:
                break
            if not found:
                break
            self.seen += found
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


# On a busy machine reading may go on for so long after the end that a line says so
PATIENT = "import icl_curate.tui.signals as s; s.SILENT = 900\n"
# DuckDB lists what it finds in use while the interpreter is taken apart; now and then there is something
IN_USE = f"{PATIENT}import ctypes, duckdb; ctypes.pythonapi.Py_IncRef(ctypes.py_object(duckdb.connect()))"
NEVER_ENDS = "import icl_curate.tui.signals as s; s.PATIENCE = 0.01; s.TidyEnd._end = lambda self, number: None"
STILL_WRITES = f"""{NEVER_ENDS}
import sys, threading
def write():
    while True:
        sys.__stderr__.write("late " * 100)
        sys.__stderr__.flush()
s.give_back = s.give_back_screen
s.give_back_screen = lambda: (threading.Thread(target=write, daemon=True).start(), s.give_back())
"""


@pytest.mark.parametrize(
    ("how", "first"),
    [("q", IN_USE), ("SIGTERM", IN_USE), ("SIGHUP", IN_USE), ("SIGTERM", NEVER_ENDS), ("SIGTERM", STILL_WRITES)],
)
def test_the_terminal_is_given_back_clean(taught: Path, how: str, first: str) -> None:
    import termios

    terminal = Terminal(taught, first)
    terminal.wait_for(b"icl-curate")  # the next step: the workspace was read
    if how == "q":
        os.write(terminal.fd, b"q")
    else:
        os.kill(terminal.pid, getattr(signal, how))
    assert terminal.ended() == (0 if how == "q" else 128 + getattr(signal, how))
    leaves = terminal.seen.rindex(b"\x1b[?1049l")
    assert leaves > terminal.seen.rindex(b"\x1b[?1049h")
    assert b"\x1b[?25h" in terminal.seen[leaves - 200 :] and b"\x1b[?1000l" in terminal.seen
    assert termios.tcgetattr(terminal.fd)[3] & termios.ECHO
    said_after = re.sub(rb"\x1b\[[0-9;?<>=]*[A-Za-z]", b"", terminal.seen[leaves:])
    assert not said_after.strip(), said_after
    if first == IN_USE:  # an app that does not end in time has not saved where it was
        assert json.loads((taught / "review.json").read_text())["tab"] == "overview"


WORKS_ON = """
import threading
import icl_curate.tui.signals as s
from icl_curate.tui.app import ReviewApp
told, narrate, leave = threading.Event(), s.narrate, ReviewApp.action_leave
s.SILENT, s.narrate = 0, lambda line: (narrate(line), told.set())
ReviewApp.action_leave = lambda self: (self.in_thread("work", told.wait, print), leave(self)) and None
"""


def test_a_process_that_outlives_its_screen_says_what_it_waits_for(taught: Path) -> None:
    terminal = Terminal(taught, WORKS_ON)
    terminal.wait_for(b"icl-curate")
    os.write(terminal.fd, b"q")
    assert terminal.ended() == 0
    assert b"waiting for running work to finish" in terminal.seen[terminal.seen.rindex(b"\x1b[?1049l") :]


FAULT = """
from icl_curate.tui.app import FRAME, ReviewApp
async def broken(self):
    secret = "-".join(["sk", "of", "mine"])
    raise ZeroDivisionError("odd \x1b[5m")
ReviewApp.action_copy = """


def test_a_key_right_after_escape_is_a_key_of_its_own(taught: Path) -> None:
    told = """
import os
end = os._exit
def tell(code):
    import textual.constants
    os.write(2, b"%.3f s" % textual.constants.ESCAPE_DELAY)
    end(code)
os._exit = tell
"""
    terminal = Terminal(taught, told)
    terminal.wait_for(b"icl-curate")
    os.write(terminal.fd, b"q")
    assert terminal.ended() == 0 and b"0.025 s" in terminal.seen


@pytest.mark.parametrize("action", ["broken", "lambda self: self.run_worker(broken(self)) and None"])
def test_a_fault_is_one_line_and_a_private_file(
    taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(tmp_path / "own" / "config.toml"))
    terminal = Terminal(taught, PATIENT + FAULT + action)
    terminal.wait_for(b"icl-curate")
    os.write(terminal.fd, b"y")
    assert terminal.ended() == 1
    said_after = re.sub(rb"\x1b\[[0-9;?<>=]*[A-Za-z]", b"", terminal.seen[terminal.seen.rindex(b"\x1b[?1049l") :])
    log = tmp_path / "own" / "last-error.log"
    assert said_after.decode().split("\r\n") == [
        "error: unexpected: ZeroDivisionError: odd ␛[5m",
        f"fix: report it with the traceback in {log}",
        "",
    ]
    assert log.stat().st_mode & 0o777 == 0o600
    assert "in broken" in log.read_text() and "sk-of-mine" not in log.read_text()


def test_a_fault_in_a_thread_is_told_and_kept(taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(tmp_path / "own" / "config.toml"))

    async def script(app: ReviewApp, pilot: Any) -> None:
        app.in_thread("broken", lambda: 1 // 0, print)
        await until(pilot, lambda: "unexpected: ZeroDivisionError" in notified(app))
        assert str(tmp_path / "own" / "last-error.log") in notified(app)

    session(taught, script)
    assert "1 // 0" in (tmp_path / "own" / "last-error.log").read_text()


def test_keys_queued_for_a_dialog_that_closes_do_nothing(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await pilot.press("colon", *"run any")
        for _ in range(4):
            app.post_message(events.Key("enter", None))
        await settled(pilot)
        assert len(app.screen_stack) == 2, "the command line was opened once, and runs nothing"
        await pilot.press("escape", "question_mark")
        for _ in range(3):
            app.post_message(events.Key("escape", None))
        await settled(pilot)
        assert len(app.screen_stack) == 1

    session(taught, script)


def test_the_end_may_come_while_the_tabs_are_made(taught: Path) -> None:
    async def run() -> int | None:
        app, asked = ReviewApp(taught), asyncio.Event()

        async def furnish(tabs: list[Any]) -> None:
            app.exit(return_code=7)
            asked.set()
            await ReviewApp._furnish(app, tabs)

        app._furnish = furnish
        async with app.run_test():
            await asyncio.wait_for(asked.wait(), 60)
        return app.return_code

    assert asyncio.run(run()) == 7


def test_it_ends_with_its_terminal(taught: Path) -> None:
    """A window that was closed leaves no process behind that waits for it."""
    terminal = Terminal(taught)
    terminal.wait_for(b"icl-curate")
    os.close(terminal.fd)
    deadline = time.monotonic() + PATIENCE
    while (found := os.waitpid(terminal.pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(terminal.pid, signal.SIGKILL)
            os.waitpid(terminal.pid, 0)
            pytest.fail("it outlived its terminal")
        time.sleep(0.1)
    assert os.waitstatus_to_exitcode(found[1]) in (128 + signal.SIGHUP, -signal.SIGHUP)


def test_without_a_workspace_it_says_how_one_is_made_and_makes_none(tmp_path: Path) -> None:
    folder = tmp_path / "none"
    terminal = Terminal(folder)
    terminal.wait_for(b"icl-curate finds the demonstrations")
    os.write(terminal.fd, b"q")
    assert terminal.ended() == 0
    assert not folder.exists()


def test_keys_of_the_tab_come_before_those_of_the_frame_also_while_a_text_is_typed(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await go(app, pilot, "preview")
        bar = app.query_one(KeyBar)
        await pilot.press("slash")
        await until(pilot, lambda: isinstance(app.focused, Input))
        await settled(pilot)
        labels = [key.label for key in bar.shown]
        assert labels.index("Back") < labels.index("Help")

    session(taught, script, (200, 50))


def test_a_page_without_the_focus_shows_the_keys_of_its_tab(taught: Path) -> None:
    """In a browser the app has no focus before a key or a click, and keys of the frame come first."""

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        def labels() -> set[str]:
            return {key.label for key in bar.shown}

        await go(app, pilot, "sources")
        bar, table = app.query_one(KeyBar), app.tab.table if app.tab else None
        app.screen.set_focus(None)
        app.app_focus, bar.shown = False, ()
        app.screen.refresh_bindings()
        await until(pilot, lambda: "Quit" in labels())
        assert "Prune" not in labels()
        app.screen.set_focus(table)
        await until(pilot, lambda: "Prune" in labels())
        app.screen.set_focus(None)
        await settled(pilot)
        assert "Prune" in labels()

    session(taught, script, (120, 40))
