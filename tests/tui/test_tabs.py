"""Overview, Sources and Demos of ``review``: what they show, against brute force, and what keys decide."""

from __future__ import annotations

import json
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.patience import PATIENCE
from factories.reviewing import (
    HELPFUL,
    HURTFUL,
    ODD,
    SOURCES,
    go,
    lines_of,
    named,
    notified,
    numbers,
    session,
    settled,
    text_of,
    until,
)
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.checks import browse as demos_found
from icl_curate.engine.checks.ledger import ledger
from icl_curate.engine.pool.display import display_line
from icl_curate.engine.report.road import status
from icl_curate.engine.store import runs
from icl_curate.engine.store.browse import Filter, Stop, listed, matching, pruned_rows, tally
from icl_curate.engine.store.columns import note, now
from icl_curate.engine.store.decisions import decide, history
from icl_curate.engine.store.overview import EXPORTED, keep_suspects, overview
from icl_curate.engine.store.trials import source_summaries
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials.sources import curves
from icl_curate.render import suggested
from icl_curate.render.pool import NOTHING_LEFT
from icl_curate.tui import tab as tab_module
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs import start
from icl_curate.tui.dialogs.dialog import Confirm
from icl_curate.tui.dialogs.walk import CurateWalk
from icl_curate.tui.model import READING
from icl_curate.tui.tabs.overview.rows import ago
from icl_curate.tui.widgets.plots import Curve
from icl_curate.tui.widgets.table import LineTable
from textual.widgets import Input


def test_overview_tells_the_state_and_the_next_step(taught: Path) -> None:
    made = Workspace.open(taught)
    decide(made, "prune", "source", ["noisy"])
    state = overview(made)

    async def script(app: ReviewApp, pilot: Any) -> None:
        shown = text_of(app)
        assert f"$ {state.next_step}" in shown
        assert f"{state.active} of {state.pool}" in shown
        assert f"{state.validation} validation, {state.test} test" in shown
        assert "all-MiniLM" not in shown and "not encoded" in shown
        assert shown.count("1 decision since") == 2
        for source in source_summaries(made):
            assert any(display_line(source.source)[:20] in line and str(source.demonstrations) in line
                       for line in lines_of(app))  # fmt: skip
        await pilot.press("y")
        assert app.clipboard == state.next_step

    session(taught, script, (120, 50))


@pytest.mark.parametrize(("limited", "config"), [(False, ""), (True, ""), (False, 'llm = "openai:another"\n')])
def test_what_is_begun_by_a_key_asks_the_llm_of_the_latest_work_unless_the_settings_name_one(
    taught: Path, monkeypatch: pytest.MonkeyPatch, limited: bool, config: str
) -> None:

    async def price(*_: object) -> Any:
        raise UsageError("nothing is priced here")

    monkeypatch.setattr(start, "dry_run_command", price)
    (taught / "config.toml").write_text(config)
    with Workspace.open(taught).write() as con:
        con.execute("UPDATE runs SET llm = 'openai:my model'")
    named = "" if limited or config else " --llm 'openai:my model'"
    asked = "openai:my model" if named else "openai:another" if config else "offline"

    async def script(app: ReviewApp, pilot: Any) -> None:
        for tab, key, command in [
            ("sources", "w", "train sources"),
            ("sources", "t", "tune --propose"),
            ("topics", "n", "train topics"),
            ("calibrate", "b", "calibrate --split validation"),
            ("jobs", "n", "train sources"),
        ]:
            await go(app, pilot, tab)
            await pilot.press(key)
            assert isinstance(app.screen, start.Start), f"{tab} {key}: {notified(app)}"
            assert app.screen.field.value == command + named
            await pilot.press("escape")
            await settled(pilot)
        await pilot.press("escape")
        await go(app, pilot, "overview")
        await pilot.press("c")
        await settled(pilot)
        assert isinstance(app.screen, CurateWalk) and f"{asked}, " in text_of(app)
        assert app.screen.model.words()[3:-3] == (["--llm", asked] if named else [])

    session(taught, script, limited=limited)


def test_after_an_export_the_next_step_leads_to_what_is_open_and_then_there_is_none(taught: Path) -> None:
    made = Workspace.open(taught)
    runs.finish(made, runs.start(made, "curate", "offline", {}), "done", {})
    runs.finish(made, runs.start(made, "evaluate", "offline", {}), "done", {})
    row_of = numbers(made)
    suspect = np.array([row_of["noisy-1"]])
    keep_suspects(made, suspect, suspect[:0], suspect[:0])
    with made.write() as con:
        con.execute("DELETE FROM duplicates")
        note(con, EXPORTED, now().isoformat())

    async def script(app: ReviewApp, pilot: Any) -> None:
        assert "$ icl-curate check" in text_of(app)
        await pilot.press("enter")
        await until(pilot, lambda: app.tab is not None and app.tab.NAME == "problems")
        assert app.tab is not None and app.tab.shown.id == "suspects"
        keep_suspects(made, suspect[:0], suspect[:0], suspect[:0])
        await go(app, pilot, "overview")
        await until(pilot, lambda: NOTHING_LEFT in text_of(app))
        await pilot.press("y", "enter")  # nothing to copy; the cursor is on the first step of the road
        await until(pilot, lambda: app.tab is not None and app.tab.NAME == "problems")
        assert "copied" not in notified(app)

    session(taught, script)


def test_the_steps_of_the_road_lead_to_their_places(taught: Path) -> None:
    made = Workspace.open(taught)
    decide(made, "prune", "source", ["noisy"])

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab: Any = app.tab
        road = {step.name: step.told for step in status(made).road}
        for name, told in road.items():
            assert any(name in line and told in line for line in lines_of(app)), name
        assert "accuracy" in text_of(app) and "not measured" in text_of(app)
        for name in ("problems", "sources", "evaluate"):
            await tab.action_open(name)
            await settled(pilot)
            assert app.tab is not None and name == app.tab.NAME
            await go(app, pilot, "overview")
        assert tab.at == "evaluate"
        await pilot.press("j", "enter")
        await settled(pilot)
        assert app.tab.NAME == "export"

    session(taught, script, (120, 50))


def test_an_empty_folder_says_what_the_tool_is_for(tmp_path: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        shown = " ".join(text_of(app).split())
        assert "finds the demonstrations that make an LLM answer worse" in shown and "files here" in shown
        assert lines_of(app)[-1].startswith(" ⏎ Choose files and columns")

    session(tmp_path / "none", script, (80, 24))


@pytest.mark.parametrize(
    ("passed", "told"),
    [
        (timedelta(seconds=-5), "just now"),
        (timedelta(seconds=59), "just now"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(minutes=119), "1 hour ago"),
        (timedelta(days=2, hours=5), "2 days ago"),
    ],
)
def test_ago(passed: timedelta, told: str) -> None:
    now = datetime(2026, 5, 1)
    assert ago(now - passed, now) == told


def test_sources_are_sorted_by_any_column_with_the_unknown_last(taught: Path) -> None:
    made = Workspace.open(taught)

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab = await go(app, pilot, "sources")
        assert [s.source for s in tab.model.sources] == ["clean", ODD, "noisy"]
        lines = text_of(app)
        assert all(display_line(s.source) in lines and f"{s.reliability:.3f}" in lines for s in source_summaries(made))
        await pilot.press("j")
        here = tab.current.source
        for _ in range(9):
            await pilot.press("s")
            values = [getattr(s, _FIELD[tab.model.sort]) for s in tab.model.sources]
            assert values == sorted(values, reverse=tab.model.descending)
            assert tab.current.source == here, "the cursor stays on its source"
        await pilot.press("S")
        values = [getattr(s, _FIELD[tab.model.sort]) for s in tab.model.sources]
        assert values == sorted(values, reverse=tab.model.descending)

    session(taught, script)


_FIELD = {
    "source": "source", "weight": "weight", "leave-one-out": "leave_one_out", "reliability": "reliability",
    "alone": "accuracy", "hits": "hits", "size": "demonstrations", "pruned": "active", "repeats": "duplicates",
}  # fmt: skip


def test_the_threshold_moves_over_the_curve_and_prunes_what_lies_below(taught: Path) -> None:
    made = Workspace.open(taught)
    found = curves(made, 5)
    assert found is not None

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab = await go(app, pilot, "sources")
        await until(pilot, lambda: tab.model.measured is not None)
        while tab.model.estimator != "reliability":
            await pilot.press("e")
        await pilot.press(*["h"] * 5)
        for at, point in enumerate(found.curves["reliability"]):
            assert tab.query_one(Curve).at == at
            below = {name for name, score in found.scores["reliability"].items() if score < point.threshold}
            assert len(below) == point.dropped and tab.model.below() == below
            told = text_of(app)
            assert f"below {point.threshold:.3f} drops {point.dropped}/3" in told and f"→ {point.accuracy:.3f}" in told
            await pilot.press("l")
        await pilot.press("p")  # two of three lie below
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        asked = text_of(app)
        assert f"active: {sum(SOURCES.values())} → {SOURCES['clean']} demonstrations" in asked
        assert f"sources gone: noisy, {display_line(ODD)}" in asked
        await pilot.press("n")
        await settled(pilot)
        assert history(made) == []
        await pilot.press("h", "p")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: [s.source for s in tab.model.sources if not s.kept] == ["noisy"])
        await pilot.press("u")
        await until(pilot, lambda: all(s.kept for s in tab.model.sources))

    session(taught, script)
    assert [(e.action, e.targets, e.undone) for e in history(made)] == [
        ("undo", ("1",), False),
        ("prune", ("noisy",), True),
    ]
    assert history(made)[1].reason.startswith("reliability below")


def test_tuning_marks_what_validation_chooses(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        tab = await go(app, pilot, "sources")
        await until(pilot, lambda: tab.model.measured is not None)
        await pilot.press("e", "l", "T")
        tuned = tab.model.measured.tuned
        assert tuned.worth_it and "noisy" in tuned.pruned
        assert tab.model.estimator == tuned.estimator and tab.model.below() == set(tuned.pruned)
        assert f"{tuned.gain:+.3f}" in text_of(app)

    session(taught, script)


def test_a_source_is_pruned_kept_and_looked_into(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        tab = await go(app, pilot, "sources")
        await pilot.press("j", "x")  # ten rows: no question asked
        await until(pilot, lambda: [s.source for s in tab.model.sources if not s.kept] == [ODD])
        await pilot.press("r")
        await until(pilot, lambda: all(s.kept for s in tab.model.sources))
        await pilot.press("r")
        await until(pilot, lambda: history(Workspace.open(taught))[0].action == "keep")
        await pilot.press("enter")
        demos: Any = app.tab
        await until(pilot, lambda: len(demos.model.rows) == SOURCES[ODD])
        assert demos.NAME == "demos"

    session(taught, script)


def test_before_training_sources_say_what_to_run(untaught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "sources")
        assert "icl-curate train sources" in text_of(app)
        await pilot.press("T", "e", "l", "p", "a")
        await settled(pilot)
        assert "reliability" not in text_of(app)

    session(untaught, script)


def test_demos_search_filter_and_sort_like_brute_force(taught: Path) -> None:
    made = Workspace.open(taught)
    decide(made, "prune", "source", ["noisy"])
    with made.read() as con:
        rows = con.execute(
            "SELECT row, id, source, input, output FROM demonstrations WHERE split = 'pool' ORDER BY row"
        ).fetchall()

    async def script(app: ReviewApp, pilot: Any) -> None:
        demos = await go(app, pilot, "demos")
        assert demos.model.rows.tolist() == [row for row, *_ in rows]
        await pilot.press("slash", *"KIND")
        await settled(pilot)
        wanted = [r[0] for r in rows if "kind" in (r[3] + r[4]).lower()]
        assert demos.model.rows.tolist() == wanted
        await pilot.press("backspace", "backspace", *"nd of")
        await settled(pilot)
        assert demos.model.asked.filter.search == "KInd of"
        assert demos.model.rows.tolist() == []
        assert "nothing matches" in text_of(app)
        await pilot.press("escape", "c")
        await settled(pilot)
        await pilot.press("v", "v")
        await settled(pilot)
        assert demos.model.rows.tolist() == [r[0] for r in rows if r[2] == "noisy"]
        await pilot.press("c", "s", "s", "s")  # row → effect → source → id
        await settled(pilot)
        assert demos.model.asked.sort == "id"
        assert demos.model.rows.tolist() == [r[0] for r in sorted(rows, key=lambda r: r[1].encode())]
        await pilot.press("S")
        await settled(pilot)
        assert demos.model.rows.tolist() == [r[0] for r in sorted(rows, key=lambda r: r[1].encode(), reverse=True)]
        await pilot.press("c", "f", *"split", "enter")
        await pilot.pause()
        await pilot.press("down", "enter")
        await settled(pilot)
        assert demos.model.asked.filter.split == "validation" and len(demos.model.rows) == 24
        await pilot.press("x")
        await settled(pilot)
        assert "only demonstrations can be pruned" in notified(app)

    session(taught, script)


def test_the_ledger_stands_in_the_list_and_the_flips_in_the_detail(taught: Path) -> None:
    made = Workspace.open(taught)
    row_of = numbers(made)

    async def script(app: ReviewApp, pilot: Any) -> None:
        demos = await go(app, pilot, "demos")
        await pilot.press("m")
        await settled(pilot)
        assert demos.model.rows.tolist() == [row_of[HURTFUL]]
        told = text_of(app)
        assert "+0 -11" in told and "hurt 11" in told and "was [/x] → " in told and "is ␛[1m now" in told
        assert "1 shot, run" in told
        await pilot.press("m")
        await settled(pilot)
        assert demos.model.rows.tolist() == [row_of[HELPFUL]]
        await pilot.press("m", "s")
        await settled(pilot)
        assert demos.model.asked.sort == "effect"
        assert demos.model.rows[:3].tolist() == [s.row for s in ledger(made)]
        assert len(demos.model.rows) == sum(SOURCES.values())
        await pilot.press("y")
        await settled(pilot)
        assert json.loads(app.clipboard)["id"] == HURTFUL

    session(taught, script, (160, 50))


def test_a_change_seen_while_the_app_ends_reloads_nothing(taught: Path) -> None:
    """Its parts may be gone one by one."""

    async def script(app: ReviewApp, pilot: Any) -> None:
        demos = await go(app, pilot, "demos")
        await demos.query("*").remove()
        app._fingerprint = None
        app._running = False  # as at the start of Textual's shutdown
        app.look_again()
        assert app._fingerprint is None, "it did not look"
        app._running = True

    session(taught, script)


def test_many_are_marked_pruned_and_put_back(taught: Path) -> None:
    made = Workspace.open(taught)

    async def script(app: ReviewApp, pilot: Any) -> None:
        demos = await go(app, pilot, "demos")
        await pilot.press("j", "space", "j", "space", "x")
        await until(pilot, lambda: len(demos.model.known.pruned) == 2)
        assert demos.model.known.pruned.tolist() == demos.model.rows[[1, 3]].tolist()
        assert not demos.model.marks.count
        assert sum(line.startswith("✗") for line in lines_of(app)) == 2
        await pilot.press("slash", *"noisy kind", "enter")
        await settled(pilot)
        await pilot.press("a")
        assert demos.model.marks.count == SOURCES["noisy"] and f"{SOURCES['noisy']} marked" in text_of(app)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("n")
        await settled(pilot)
        assert len(demos.model.known.pruned) == 2 and demos.model.marks.count, "nothing is lost by saying no"
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: len(demos.model.known.pruned) == 2 + SOURCES["noisy"])
        await settled(pilot)
        assert "pruned by" in text_of(app)
        await pilot.press("r")
        await until(pilot, lambda: len(demos.model.known.pruned) == 1 + SOURCES["noisy"])
        await pilot.press("u", "u", "u")
        await until(pilot, lambda: len(demos.model.known.pruned) == 0)
        marks = demos.model.marks
        assert marks.count == 2 + SOURCES["noisy"] and f"{marks.count} marked" in text_of(app), "as they were"
        await pilot.press("U")
        await until(pilot, lambda: len(demos.model.known.pruned) == 2)
        assert marks.count == SOURCES["noisy"]
        await pilot.press("u")
        await until(pilot, lambda: marks.count == 2 + SOURCES["noisy"])

    session(taught, script)
    assert [entry.undone for entry in history(made) if entry.action not in ("undo", "redo")] == [True, True, True]


def test_thirty_thousand_rows_are_paged_and_few_of_them_held(tmp_path: Path) -> None:
    made, count = Workspace.create(tmp_path), 30_000
    with made.write() as con:
        con.execute(
            "INSERT INTO demonstrations SELECT i, 'd' || lpad(i::VARCHAR, 6, '0'), 'text ' || (i * 7919) % 30000, 'o',"
            " [], [], '', 's' || i % 5, 'pool', '{}', 'h', 'f', i, now()::TIMESTAMP, NULL, NULL FROM range(?) t(i)",
            [count],
        )

    async def script(app: ReviewApp, pilot: Any) -> None:
        demos = await go(app, pilot, "demos")
        table = demos.query_one(LineTable)
        await pilot.press("G")
        await until(pilot, lambda: "d029999" in lines_of(app)[-2])
        await pilot.press(*["pageup"] * 3, *["k"] * 5)
        await settled(pilot)
        assert f"d{int(demos.model.rows[table.cursor]):06}" in text_of(app) and "·" not in "".join(lines_of(app)[3:20])
        table.scroll_to(y=15_000, animate=False)
        await until(pilot, lambda: "d015000" in text_of(app))
        assert len(table._lines) <= 4_000
        decide(made, "prune", "demonstration", ["d015003"])
        await until(pilot, lambda: any(line.startswith("✗") and "d015003" in line for line in lines_of(app)))
        assert round(table.scroll_y) == 15_000, "a reload leaves the view where it was"
        await pilot.press("s", "s", "s", "g")
        await settled(pilot)
        assert demos.model.asked.sort == "input"
        with made.read() as con:
            wanted = con.execute("SELECT row FROM demonstrations ORDER BY input, row").fetchnumpy()["row"]
        assert np.array_equal(demos.model.rows, wanted)

    session(tmp_path, script)


def test_the_first_matches_of_a_large_pool_do_not_wait_for_the_others(
    taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demos_found, "PART", 20)
    shown: list[tuple[bool, list[int], str]] = []
    made = Workspace.open(taught)
    with made.read() as con:
        wanted = con.execute(
            "SELECT row FROM demonstrations WHERE split = 'pool' AND contains(input, 'kind') ORDER BY row"
        ).fetchnumpy()["row"]

    async def script(app: ReviewApp, pilot: Any) -> None:
        demos = await go(app, pilot, "demos")
        show = demos.show

        def showing(found: Any) -> None:
            show(found)
            shown.append((found.whole, found.rows.tolist(), str(demos.query_one("#asked").render())))

        monkeypatch.setattr(demos, "show", showing)
        await pilot.press("slash")
        demos.query_one(Input).value = "kind"  # at once: a search after each letter would go on from the one before
        await until(pilot, lambda: shown and shown[-1][0])
        (first, some, told), (last, every, told_last) = shown[-2:]
        assert (first, last) == (False, True)
        assert some == [row for row in wanted if row < 20]
        assert every == wanted.tolist()
        assert f"{len(some)}+ of {sum(SOURCES.values())} rows" in told
        assert f"{len(every)} of {sum(SOURCES.values())} rows" in told_last
        await pilot.press("enter", *"jjj")
        here = demos.current
        demos.reload()
        await settled(pilot)
        assert demos.current == here == wanted[3]

    session(taught, script)


def test_browsing_stops_when_told(taught: Path) -> None:
    from icl_curate.engine.base.errors import Cancelled

    made, stop = Workspace.open(taught), Stop()
    stop.stop()
    with pytest.raises(Cancelled):
        matching(made, stop=stop)
    assert matching(made, stop=Stop()).size == sum(SOURCES.values())


def test_listed_rows_keep_the_order_asked_for(taught: Path) -> None:
    made = Workspace.open(taught)
    decide(made, "prune", "demonstration", ["noisy-1", "odd-2"])
    row_of = numbers(made)
    asked = [row_of[name] for name in ("odd-6", "noisy-1", "clean-0", "odd-2")]
    found = listed(made, np.array([*asked, 10**6]), pruned_rows(made))
    assert [row.row for row in found] == asked
    assert [row.pruned for row in found] == [False, True, False, True]
    assert len(found[0].input) == 400
    assert tally(made, "source") == [(name, count) for name, count in sorted(SOURCES.items(), key=lambda x: -x[1])]
    among = np.array([row_of["clean-0"], row_of["noisy-1"]])
    assert matching(made, Filter(source="noisy"), among=among).tolist() == [row_of["noisy-1"]]


@pytest.mark.parametrize("held", (0.01, 60.0))
def test_a_tab_paints_first_its_content_or_that_it_is_read(
    taught: Path, held: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tab_module, "HELD", held)

    async def script(app: ReviewApp, pilot: Any) -> None:
        sources: Any = named(app, "sources")
        go_on, read = threading.Event(), sources.read

        def slow(workspace: Workspace) -> Any:
            go_on.wait(PATIENCE)
            return read(workspace)

        monkeypatch.setattr(sources, "read", slow)
        painted: list[str] = []
        monkeypatch.setattr(app, "_display", lambda screen, update: painted.append(text_of(app)))
        try:
            await pilot.press("3")
            if held < 1:
                await until(pilot, lambda: any("reading" in shown for shown in painted))
            else:
                await until(pilot, lambda: sources.nothing is READING)
        finally:
            go_on.set()
        await settled(pilot)
        assert "noisy" in painted[-1]
        assert any("reading" in shown for shown in painted) == (held < 1)

    session(taught, script)


def test_a_copied_command_has_the_workspace_that_was_typed(support: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggested, "_typed", {"workspace": "'my pool'"})
    monkeypatch.setattr(suggested, "_commands", {" evaluate": frozenset({"workspace"})})

    async def script(app: ReviewApp, pilot: Any) -> None:
        await until(pilot, lambda: app.tab is not None and app.tab.to_copy().startswith("icl-curate evaluate"))
        await pilot.press("y")
        assert app.clipboard.startswith("icl-curate evaluate -w 'my pool' --split")

    session(support, script)
