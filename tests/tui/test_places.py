"""Places and what stands over them: Export with the first record of each format, the two tabs of More, the jobs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from factories.reviewing import go, lines_of, named, notified, session, settled, text_of, until
from icl_curate.engine.export.corpus import FORMATS as WRITTEN
from icl_curate.engine.export.corpus import ExportPlan, export, first_record
from icl_curate.engine.store.decisions import decide, relabel
from icl_curate.engine.store.versions import save_version
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.jobs import Jobs
from icl_curate.tui.dialogs.start import Start
from icl_curate.tui.tabs.export.model import FORMATS
from icl_curate.tui.widgets.reader import Reader
from textual.widgets import Input

pytestmark = pytest.mark.usefixtures("nobody_waits")


def read(app: Any, name: str) -> str:
    return "\n".join("".join(segment.text for segment in line) for line in app.query_one(name, Reader)._lines)


@pytest.mark.parametrize("kind", WRITTEN)
def test_the_first_record_is_what_an_export_begins_with(taught: Path, tmp_path: Path, kind: str) -> None:
    store, out = Workspace.open(taught), tmp_path / "out"
    decide(store, "prune", "demonstration", ["clean-0"])
    plan = ExportPlan(out=out, format=kind)
    first = first_record(store, plan)
    export(store, plan)
    if kind in ("parquet", "hf"):
        assert json.loads(first)["id"] == "clean-1"
        return
    written = out.read_text(encoding="utf-8")
    shown = first.removesuffix("\n]\n").rstrip("\n") if kind == "dspy" else first
    assert "question 1 of the clean kind" in first and written.startswith(shown)


def test_export_shows_each_format_and_what_changed(taught: Path) -> None:
    store = Workspace.open(taught)
    decide(store, "prune", "source", ["noisy"])
    relabel(store, {"clean-1": "answer 3"})
    save_version(store, "friday")

    async def script(app: ReviewApp, pilot: Any) -> None:
        tab = await go(app, pilot, "export")
        assert [line.split()[0] for line in lines_of(app)[3 : 3 + len(FORMATS)]] == [one.name for one in FORMATS]
        assert "40 of 64 rows, not written yet" in text_of(app)
        assert json.loads(read(app, "#record").partition("\n\n")[2].replace("\n", " "))["id"] == "clean-0"
        told = read(app, "#changes")
        assert "24 rows pruned, 1 output corrected" in told and "friday" in told
        assert ["noisy", "24", "0", "gone"] in [line.split() for line in told.splitlines()]
        assert "2 sources as indexed" in told
        await pilot.press("j")
        await until(pilot, lambda: "id,source,input,output" in read(app, "#record"))
        await pilot.press("G")
        await until(pilot, lambda: "calibrate --split validation" in read(app, "#record"))
        assert tab.copied() == "icl-curate calibrate --split validation"
        await pilot.press("k", "k", "enter")
        await settled(pilot)
        assert isinstance(app.screen, Start)
        assert app.screen.query_one(Input).value == "export curated.dspy.json --format dspy"
        await pilot.press("escape", "v")
        assert app.screen.query_one(Input).value == "version save "

    session(taught, script)
    assert not [path for path in taught.parent.iterdir() if path.name.startswith("curated")]


def test_a_template_that_fails_is_told_in_the_place_of_the_record(
    taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.txt").write_text("{{ nosuch }}", encoding="utf-8")
    monkeypatch.setenv("ICL_CURATE_TEMPLATE", str(tmp_path / "own.txt"))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "export")
        shown = read(app, "#record")
        assert "names 'nosuch'" in shown and "correct the template" in shown and "reading" not in shown
        assert not notified(app)

    session(taught, script)


def test_a_decision_changes_what_export_shows(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "export")
        assert "nothing was changed" in read(app, "#changes")
        decide(Workspace.open(taught), "prune", "demonstration", ["clean-0"])
        app.look_again()
        await until(pilot, lambda: "1 row pruned" in read(app, "#changes") and "clean-1" in read(app, "#record"))

    session(taught, script)


@pytest.mark.parametrize("size", [(80, 24), (60, 18), (40, 12)])
def test_export_on_small_terminals(taught: Path, size: tuple[int, int]) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "export")
        assert "curated.jsonl" in text_of(app) and "Write" in lines_of(app)[-1]
        if size[0] >= 80:
            assert not [line for line in lines_of(app)[2:10] if "…" in line]

    session(taught, script, size)


def test_the_key_e_of_overview_still_leads_to_export(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await pilot.press("e")
        await settled(pilot)
        assert app.tab is named(app, "export")

    session(taught, script)


def test_topics_and_calibrate_share_a_place(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await pilot.press("8")
        await settled(pilot)
        assert app.tab is named(app, "topics") and "8 More" in lines_of(app)[0]
        for name in ("calibrate", "topics", "calibrate"):
            await pilot.press("tab")
            await settled(pilot)
            assert app.tab is named(app, name)
        await pilot.click("#calibrate #beside", offset=(lines_of(app)[1].index("Topics"), 0))
        await settled(pilot)
        assert app.tab is named(app, "topics")
        await pilot.press("9")
        await settled(pilot)
        assert app.tab is named(app, "calibrate")
        await pilot.click("TabBar", offset=(lines_of(app)[0].index("More"), 0))
        assert app.tab is named(app, "topics")

    session(taught, script)


def test_the_list_of_jobs_lies_over_any_place(taught: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        for name in ("demos", "calibrate"):
            tab = await go(app, pilot, name)
            await pilot.press("J")
            await settled(pilot)
            assert isinstance(app.screen, Jobs)
            assert "no jobs yet" in text_of(app)
            app.screen.refresh()  # whoever draws it first keeps it
            assert "1 Overview" in lines_of(app)[0] and "Close" in lines_of(app)[-1]
            await pilot.press("escape")
            assert app.tab is tab and app.focused is not None and tab in app.focused.ancestors
        bar: Any = app.query_one("TabBar")
        bar.badge = ("⟳ 7",)
        await pilot.pause()
        await pilot.click("TabBar", offset=(lines_of(app)[0].index("⟳"), 0))
        await settled(pilot)
        assert isinstance(app.screen, Jobs)

    session(taught, script)


def test_names_of_before_stay_valid(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(taught.parent / "config.toml"))
    names = [f"go.{name}" for name in ("sources", "demos", "topics", "preview", "calibrate", "evaluate", "jobs")]
    names += ["jobs.new", "jobs.cancel", "overview.export"]
    keys = "".join(f'"{name}" = "ctrl+f{i}"\n' for i, name in enumerate(names, 1))
    (taught.parent / "keys.toml").write_text(keys)
    (taught / "review.json").write_text(json.dumps({"tab": "jobs", "tabs": {"jobs": {}}}))

    async def script(app: ReviewApp, pilot: Any) -> None:
        assert notified(app) == "" and app.tab is named(app, "overview")
        await pilot.press("ctrl+f3")
        await settled(pilot)
        assert app.tab is named(app, "topics")
        await pilot.press("ctrl+f7", "ctrl+f8")
        await settled(pilot)
        assert isinstance(app.screen, Start)

    session(taught, script)


def test_the_old_digits_of_the_changelog_can_be_set(taught: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICL_CURATE_CONFIG", str(taught.parent / "config.toml"))
    told = (
        (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8").partition("`[go]` in `keys.toml`")[2]
    )
    lines = re.findall(r'`(\w+ = "\d")`', told.partition("Names of actions")[0])
    (taught.parent / "keys.toml").write_text("[go]\n" + "\n".join(lines) + "\n")

    async def script(app: ReviewApp, pilot: Any) -> None:
        for digit, name in (("3", "demos"), ("7", "evaluate"), ("9", "problems"), ("0", "export")):
            await pilot.press(digit)
            await settled(pilot)
            assert app.tab is named(app, name)
        await pilot.press("8")
        await settled(pilot)
        assert isinstance(app.screen, Jobs) and notified(app) == ""

    assert len(lines) == 9
    session(taught, script)
