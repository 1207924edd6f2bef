"""The widgets of ``review`` by themselves: columns that fit, lines of exact width, curves of any size."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from factories.reviewing import HOSTILE, lines_of, settled
from hypothesis import given, settings
from hypothesis import strategies as st
from icl_curate.engine.jobs.follow import LiveJob
from icl_curate.render.columns import LineColumn, fit, missing
from icl_curate.tui import workers
from icl_curate.tui.actions import Action
from icl_curate.tui.app import FRAME, PLACES, TABS
from icl_curate.tui.live_jobs import badge
from icl_curate.tui.tabs.problems.lists import RepeatsList
from icl_curate.tui.tabs.sources.tab import SourcesTab
from icl_curate.tui.themes import named_styles
from icl_curate.tui.widgets.bars import KeyHint, TabBar, fitted
from icl_curate.tui.widgets.lines import BarCell, ColumnLayout, Line, blocks, stroke
from icl_curate.tui.widgets.plots import Curve, CurveData
from icl_curate.tui.widgets.table import LineTable
from icl_curate.tui.workers import at_rest
from rich.cells import cell_len
from rich.theme import Theme
from textual.app import App, ComposeResult

columns = st.lists(
    st.builds(
        LineColumn, st.just("c"), st.just("c"), width=st.integers(1, 20), rank=st.integers(0, 4),
        grow=st.integers(0, 3), most=st.integers(20, 40),
    ),
    min_size=1, max_size=8,
)  # fmt: skip


@settings(deadline=None)
@given(columns, st.integers(5, 200), st.integers(1, 2))
def test_columns_take_the_room_there_is(given_columns: list[LineColumn], tab: int, gap: int) -> None:
    shown = fit(given_columns, tab, gap)
    used = sum(width for _, width in shown) + gap * (len(shown) - 1)
    kept = {i for i, _ in shown}
    assert [i for i, _ in shown] == sorted(kept)
    assert all(i in kept for i, column in enumerate(given_columns) if column.rank == 0) or len(kept) == 1
    left_out = [given_columns[i].rank for i in range(len(given_columns)) if i not in kept]
    stayed = [given_columns[i].rank for i in kept if given_columns[i].rank]
    assert not left_out or not stayed or max(stayed) <= min(left_out) or min(left_out) >= max(stayed)
    if left_out or used > tab:
        return
    assert used <= tab
    if any(given_columns[i].grow and width < given_columns[i].most for i, width in shown):
        assert used == tab


def hints(actions: Sequence[Action]) -> list[KeyHint]:
    return [
        KeyHint(key, key, action.label, action.run, action.about, False)
        for action in actions
        if action.footer and (key := action.keys.partition(",")[0].replace("question_mark", "?").replace("colon", ":"))
    ]


@pytest.mark.parametrize(
    ("actions", "width", "kept"),
    [
        (SourcesTab.ACTIONS, 80, "x r t w p a"),
        (RepeatsList.ACTIONS, 60, "escape x"),
        (SourcesTab.ACTIONS, 60, "x r t w"),
    ],
)
def test_the_keys_needed_most_stay_in_a_narrow_footer(actions: Sequence[Action], width: int, kept: str) -> None:
    frame = [action for action in FRAME if action.footer and action.name.startswith("frame.")]
    every = [*hints(actions), *hints(frame)]
    shown = fitted(every, [action.run for action in frame], width)
    assert sum(cell_len(key.text) for key in shown) <= width
    assert " ".join(key.key for key in shown) == f"{kept} u ? : q"
    assert [key.label for key in shown[-4:]] == ["", "Help", "", ""]
    assert fitted(every, [], 500) == every


@settings(deadline=None)
@given(columns, st.integers(20, 200))
def test_a_heading_says_how_many_columns_are_missing(given_columns: list[LineColumn], width: int) -> None:
    layout = ColumnLayout.into(given_columns, width, 1)
    said = layout.heading(None, width)
    left_out = len(given_columns) - len(layout.shown)
    assert missing(given_columns, layout.shown) == list(layout.missing) == ["c"] * left_out
    assert said.plain.endswith(f" +{left_out}") if left_out else "+" not in said.plain
    if left_out:
        assert said.cell_len == width - 1


class Stage(App[None]):
    def __init__(self, widget: Any) -> None:
        super().__init__()
        self.widget = widget
        self.console.push_theme(Theme(named_styles(self.theme_variables)))

    def compose(self) -> ComposeResult:
        yield self.widget


def _on_stage(widget: Any, size: tuple[int, int], script: Any) -> None:
    async def run() -> None:
        async with Stage(widget).run_test(size=size) as pilot:
            await pilot.pause()
            await script(pilot.app, pilot)

    asyncio.run(run())


@pytest.mark.parametrize("width", [1, 2, 7, 20, 61])
def test_every_line_is_as_wide_as_the_table(width: int) -> None:
    table = LineTable(
        [
            LineColumn("a", "名前", 5, grow=1),
            LineColumn("b", "b", 8, cut="start", rank=1),
            LineColumn("c", "c", 6, right=True),
        ],
        marked=lambda i: i % 2 == 0,
    )

    async def script(app: Any, pilot: Any) -> None:
        table.fill(
            [Line((text[:300], text[:300], BarCell(i / 9, "")), sign=("✗", "")) for i, text in enumerate(HOSTILE)]
        )
        await pilot.pause()
        for i in range(len(HOSTILE) + 3):
            strip = table.render_line(i)
            assert strip.cell_length == table.scrollable_content_region.width
            assert cell_len("".join(segment.text for segment in strip)) == strip.cell_length

    _on_stage(table, (width, 12), script)


def test_keys_move_the_cursor_and_the_view_follows() -> None:
    table = LineTable([LineColumn("n", "n", 6)])

    async def script(app: Any, pilot: Any) -> None:
        table.focus()
        table.fill([Line((f"line{i}",)) for i in range(100)])
        for keys, at in ((["j", "j", "down"], 3), (["k"], 2), (["G"], 99), (["ctrl+u"], 92), (["g"], 0), (["k"], 0)):
            await pilot.press(*keys)
            assert table.cursor == at
            assert any(f"line{at} " in line + " " for line in lines_of(app))
        table.fill([])
        assert table.cursor == 0
        await pilot.press("j", "G", "enter", "pagedown")

    _on_stage(table, (20, 9), script)


def test_the_cursor_is_in_view_when_a_list_grows_beyond_the_window() -> None:
    table = LineTable([LineColumn("n", "n", 6)])

    async def script(app: Any, pilot: Any) -> None:
        for count, at in ((3, 2), (100, 70), (3, 0)):
            table.fill([Line((f"line{i}",)) for i in range(count)])
            table.cursor = at
            await settled(pilot)
            assert any(f"line{at} " in line + " " for line in lines_of(app)), lines_of(app)

    _on_stage(table, (20, 9), script)


def test_a_move_of_the_cursor_draws_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    table = LineTable([LineColumn("n", "n", 6)], moved=lambda: moves.append(table.cursor))
    drawn: list[int] = []
    moves: list[int] = []
    draw = table.render_line

    async def script(app: Any, pilot: Any) -> None:
        table.focus()
        table.fill([Line((f"line{i}",)) for i in range(100)])
        await pilot.press("j")
        await settled(pilot)
        drawn.clear()
        monkeypatch.setattr(table, "render_line", lambda y: drawn.append(y) or draw(y))
        await pilot.press("j")
        await settled(pilot)
        assert sorted(drawn) == [2, 3], "under the heading: the line it left, and that it came to"
        assert moves == [1, 2]

    _on_stage(table, (20, 9), script)


def test_of_calls_that_follow_each_other_the_first_and_the_last_count(monkeypatch: pytest.MonkeyPatch) -> None:
    table = LineTable([LineColumn("n", "n", 6)])
    calls: list[float] = []
    now = 0.0

    async def script(app: Any, pilot: Any) -> None:
        nonlocal now
        monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: now))
        look = at_rest(table, 0.05, lambda: calls.append(now))
        for at in (1.0, 1.04, 1.08):
            now = at
            look()
        assert calls == [1.0], "the first at once"
        await settled(pilot)
        assert calls == [1.0, 1.08]
        now = 2.0
        look()
        assert calls == [1.0, 1.08, 2.0]

    _on_stage(table, (20, 9), script)


def test_a_stroke_is_as_long_as_its_share() -> None:
    for width in range(1, 30):
        for share in (-1, 0, 0.1, 0.5, 0.99, 1, 2):
            text = stroke(share, width, "").plain
            assert len(text) == width
            halves = 2 * text.count("━") + text.count("╸")
            assert halves == round(max(0, min(1, share)) * width * 2)


@pytest.mark.parametrize("size", [(1, 1), (9, 2), (70, 12)])
def test_a_curve_is_drawn_in_whatever_room_there_is(size: tuple[int, int]) -> None:
    draw = random.Random(size[0])
    curve = Curve()

    async def script(app: Any, pilot: Any) -> None:
        for count in (1, 2, 7, 400):
            points = [(float(i), draw.random()) for i in range(count)]
            curve.draw(CurveData(points, [f"{i}" for i in range(count)], 0.5, count // 2), count - 1)
            await pilot.pause()
            lines = curve.render().plain.split("\n")
            assert all(cell_len(line) <= size[0] for line in lines) and len(lines) <= size[1]
            curve.at = 10**6
            assert curve.at == count - 1
            if size[0] >= 30:
                assert sum(line.count("●") for line in lines) == 1
                column = next(line.index("●") for line in lines if "●" in line)
                assert column == size[0] - 1 or count == 1, "the last point stands at the right edge"

    _on_stage(curve, size, script)


def test_an_outlier_leaves_the_lines_to_what_decides() -> None:
    heights = [0.73, 0.74, 0.75, 0.76, 0.74, 0.72, 0.1]
    points = [(float(i), y) for i, y in enumerate(heights)]
    curve = Curve()

    async def script(app: Any, pilot: Any) -> None:
        drawn = CurveData(points, [f"{i}" for i in range(7)], heights[0], 3, [0.01] * 7, x="threshold", y="accuracy")
        curve.draw(drawn, 0)
        await pilot.pause()
        lines = curve.render().plain.split("\n")
        assert lines[0] == "accuracy" and lines[-1].split("▾")[0].strip() == "threshold"
        rows = [i for i, line in enumerate(lines[:-1]) for sign in line if sign in "●•◆"]
        assert max(rows) - min(rows) >= 0.6 * (len(lines) - 3), "the points that decide use most lines"
        outlier = next(line for line in lines if "▾" in line)
        assert lines.index(outlier) == len(lines) - 3 and "▾ 1 lower" in lines[-1]
        labels = [line[:6].strip() for line in lines[1:-2] if line[:6].strip()]
        assert len(labels) == len(set(labels)) == 3 and "0.730" in labels
        assert "╎" in "".join(lines), "intervals are drawn"

    _on_stage(curve, (70, 20), script)


@pytest.mark.parametrize("height", range(5, 14))
def test_the_level_of_a_curve_is_named_on_its_own_line(height: int) -> None:
    curve = Curve()

    async def script(app: Any, pilot: Any) -> None:
        points = [(float(i), y) for i, y in enumerate([0.83, 0.86, 0.9, 0.88])]
        curve.draw(CurveData(points, [f"{i}" for i in range(4)], 0.83), 3)
        await pilot.pause()
        dashed = [line for line in curve.render().plain.split("\n") if "┈" in line]
        assert [line[:7].strip() for line in dashed] == ["0.830"]

    _on_stage(curve, (60, height), script)


@pytest.mark.parametrize("width", (1, 8, 22, 40, 80, 120))
def test_the_open_tab_is_in_sight_at_any_width(width: int) -> None:
    names = list(TABS)
    bar = TabBar({name: (name,) for name in names})

    async def script(app: Any, pilot: Any) -> None:
        for name in names:
            bar.current = name
            await pilot.pause()
            assert width < 30 or name.capitalize() in lines_of(app)[0]

    _on_stage(bar, (width, 1), script)


def test_a_line_with_a_text_below_is_wrapped_clicked_and_kept_in_view() -> None:
    table = LineTable([LineColumn("n", "n", 6)])
    words = " ".join(f"w{i}" for i in range(40))

    async def script(app: Any, pilot: Any) -> None:
        table.focus()
        table.grow_to(3)
        table.fill([Line((f"line{i}",), below=words if i else "short") for i in range(20)])
        await pilot.pause()
        shown = [line[:28].strip() for line in lines_of(app)]  # beside the scroll bar
        assert shown[1:4] == ["line0", "short", ""] and shown[4] == "line1"
        assert shown[5].startswith("w0 w1") and shown[6].endswith("…")  # cut at its last line
        await pilot.click(table, offset=(2, 6))  # on the text of the second
        assert table.cursor == 1
        await pilot.press("G")
        await pilot.pause()
        assert table.cursor == 19 and lines_of(app)[-3].split()[0] == "line19"
        await pilot.press("g")
        await pilot.pause()
        assert lines_of(app)[1].split()[0] == "line0"
        table.grow_to(1)
        await pilot.pause()
        assert [line.split()[0] for line in lines_of(app)[1:3]] == ["line0", "line1"]

    _on_stage(table, (30, 10), script)


@pytest.mark.parametrize("width", (64, 80, 90, 120))
def test_every_tab_has_its_number_beside_a_running_job(width: int) -> None:
    names = list(TABS)
    bar = TabBar({name: (name,) for name in names})
    bar.badge = ("weights 42 %", "42")

    async def script(app: Any, pilot: Any) -> None:
        for name in names:
            bar.current = name
            await pilot.pause()
            line = lines_of(app)[0]
            assert all(f"{i} " in line for i, _ in enumerate(names, 1)), line
            assert name.capitalize() in line and "42" in line

    _on_stage(bar, (width, 1), script)


ON_80_CELLS = "1 Overview 2 Problems 3 Sources 4 Evaluate 5 Export 6 Demos 7 Preview 8 More"


@pytest.mark.parametrize("share", (None, 0.07, 0.42, 1.0))
def test_all_names_of_the_strip_are_whole_on_80_cells_beside_a_job(share: float | None) -> None:
    bar = TabBar(PLACES)
    short = badge([LiveJob(12, True, "train sources", share)])[-1]
    bar.badge = (short,)

    async def script(app: Any, pilot: Any) -> None:
        for name in TABS:
            bar.current = name
            await pilot.pause()
            line = lines_of(app)[0]
            assert line.startswith(ON_80_CELLS) and line.endswith(short)

    _on_stage(bar, (80, 1), script)


def test_where_names_do_not_fit_the_last_ones_leave_their_numbers() -> None:
    bar = TabBar(PLACES)
    bar.current = "topics"

    async def script(app: Any, pilot: Any) -> None:
        assert lines_of(app)[0].rstrip() == "1 Overview 2 Problems 3 Sources 4 Evaluate 5 6 7 8 More"

    _on_stage(bar, (60, 1), script)


def test_blocks_are_as_high_as_their_values() -> None:
    assert blocks([0.2, 0.9]) == "▁█" and blocks([0.5, 0.5]) == "▁▁"
    assert blocks([0, 1, 4, 8], 0) == " ▂▅█"
