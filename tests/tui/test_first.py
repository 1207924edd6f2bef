"""The first screen of an empty folder, and the form that chooses files and their columns."""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from factories.reviewing import go, is_safe, lines_of, session, settled, text_of, until
from icl_curate.engine.index.listing import files_here
from icl_curate.engine.index.peek import peek
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.dialog import Pick
from icl_curate.tui.dialogs.index_form import IndexForm
from icl_curate.tui.dialogs.start import Start
from icl_curate.tui.session import load
from icl_curate.tui.tabs.overview import first
from icl_curate.tui.widgets.table import LineTable
from textual.pilot import Pilot
from textual.widgets import Input

pytestmark = pytest.mark.usefixtures("nobody_waits")

SMALL = 80, 24


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, *columns: str, count: int = 40) -> None:
    names = "where is my parcel {} [/b]\x1b[31m", "label {} [@click=app.exit]x[/]", "crowd{}"
    rows = [(names[0].format(i), names[1].format(i % 3), names[2].format(i)) for i in range(count)]
    path.write_text("".join(json.dumps(dict(zip(columns, row, strict=False))) + "\n" for row in rows))


def shown(app: ReviewApp) -> str:
    """The command whose price is asked for."""
    assert isinstance(app.screen, Start)
    return app.screen.query_one(Input).value


def test_an_empty_folder_shows_its_files_as_they_would_be_read_and_keys_that_work(here: Path) -> None:
    write(here / "zendesk export (final).jsonl", "Customer Message", "Intent Label")
    write(here / "questions.jsonl", "question", "answer", count=9)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        text = text_of(app)
        assert "Customer Message → Intent Label" in text and "question → answer" in text and " 40 " in text
        assert "where is my parcel 0" in text and is_safe(text)
        keys = lines_of(app)[-1]
        assert "⏎ Choose files" in keys and "d Sample pool" in keys and "u" not in keys.replace("Quit", "").split()
        await pilot.press("j", "enter")
        await settled(pilot)
        assert isinstance(app.screen, IndexForm) and app.screen.path == "questions.jsonl"

    session(here / "w", script, (120, 24))
    assert not (here / "w").exists()


@pytest.mark.parametrize("key", ["enter", "i"])
def test_a_folder_without_files_says_so_and_leads_to_the_form(here: Path, key: str) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        assert "no file here that could be read" in text_of(app)
        await pilot.press(key)
        await settled(pilot)
        assert isinstance(app.screen, IndexForm) and "/ adds one" in text_of(app)
        await pilot.press("p", "i", "o", "space", "D", "enter")
        assert isinstance(app.screen, IndexForm)

    session(here / "w", script, SMALL)


def test_the_sample_pool_is_one_key_away(here: Path) -> None:
    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Start))
        assert shown(app) == first.SAMPLE

    words = shlex.split(first.SAMPLE)
    assert peek(words[1], {}).files == 8 and peek(words[3], {}).bad == peek(words[5], {}).bad == 0

    session(here / "w", script, SMALL)


def test_two_keys_lead_from_the_files_to_the_price_and_esc_leads_back(here: Path) -> None:
    write(here / "a.jsonl", "ticket", "team", "who")
    write(here / "b.jsonl", "question", "answer")

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await settled(pilot)
        assert "input and output guessed" in text_of(app)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Start))
        assert shown(app) == (
            "index a.jsonl b.jsonl --validation-fraction 0.1 --test-fraction 0.1 "
            "--map a.jsonl::input=ticket --map a.jsonl::output=team"
        )
        await pilot.press("escape")
        assert isinstance(app.screen, IndexForm)
        await pilot.press("escape")
        assert app.tab is not None and not isinstance(app.screen, IndexForm)

    session(here / "w", script, SMALL)


def test_the_form_changes_uses_and_columns_and_shows_the_row_as_it_will_be_read(here: Path) -> None:
    write(here / "a.jsonl", "ticket", "team", "who")
    write(here / "b.jsonl", "question", "answer")

    async def pick(app: ReviewApp, pilot: Pilot[None], *keys: str) -> None:
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await pilot.press(*keys, "enter")
        await settled(pilot)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        form = app.screen
        assert isinstance(form, IndexForm)
        await pilot.press("o")
        await pick(app, pilot, *"who")
        assert form.files.own("a.jsonl") == {"output": "who"} and "crowd0" in text_of(app)
        await pilot.press("m")
        await pick(app, pilot, *"source")
        await pick(app, pilot, *"team")
        assert "label 0" in text_of(app)
        await pilot.press("m")
        await pick(app, pilot, *"test")
        await pick(app, pilot, "backspace", "backspace", "backspace", *"0.25")
        await pilot.press("j", "space")
        await settled(pilot)
        assert form.files.use("b.jsonl") == "validation" and "held out: test 25%" in text_of(app)
        assert is_safe(text_of(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Start))
        assert shown(app) == (
            "index a.jsonl --validation b.jsonl --test-fraction 0.25 --map a.jsonl::input=ticket "
            "--map a.jsonl::output=who --map a.jsonl::source=team"
        )

    session(here / "w", script, SMALL)


def test_a_fault_stands_once_at_its_file_and_enter_goes_there(here: Path) -> None:
    write(here / "a.jsonl", "question", "answer")
    (here / "z.jsonl").write_text('{"a": 1, "b": 2}\n' * 4)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter", "j", "p", "k")
        await settled(pilot)
        assert "choose from" not in text_of(app)
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(app.screen, IndexForm) and app.screen.path == "z.jsonl"
        assert text_of(app).count("2 to choose from") == 1
        await pilot.press("space", "space", "space", "enter")  # not used after all
        await until(pilot, lambda: isinstance(app.screen, Start))

    session(here / "w", script, SMALL)


def test_files_are_added_by_a_pattern_or_folder_by_folder(here: Path) -> None:
    for name in ("one", "two"):
        (here / "my pool" / name).mkdir(parents=True)
        write(here / "my pool" / name / "a.jsonl", "question", "answer")

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter", "slash")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await pilot.press(*"my pool/*/a.jsonl", "enter")
        await settled(pilot)
        assert isinstance(app.screen, IndexForm) and app.screen.files.used("pool") == ["my pool/*/a.jsonl"]
        for keys in ("my", "two", "a.js"):
            await pilot.press(*(["slash"] if keys == "my" else []))
            await until(pilot, lambda: isinstance(app.screen, Pick))
            await pilot.press(*keys, "enter")
            await settled(pilot)
        assert isinstance(app.screen, IndexForm) and app.screen.path == "my pool/two/a.jsonl"

    session(here / "w", script, SMALL)


def test_what_was_changed_is_there_after_a_crash_until_it_is_cleared(here: Path) -> None:
    write(here / "a.jsonl", "ticket", "team", "who")
    folder = here / "w"

    async def change(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter", "t")
        assert load(folder).draft == {"a.jsonl": {"use": "test"}}  # at once: nothing is left to the end
        app.save = lambda: None  # type: ignore[method-assign]
        await pilot.press("escape", "enter")
        await settled(pilot)
        assert isinstance(app.screen, IndexForm) and app.screen.files.use("a.jsonl") == "test"

    async def clear(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(app.screen, IndexForm) and app.screen.files.use("a.jsonl") == "test"
        await pilot.press("D")
        assert app.screen.files.use("a.jsonl") == "pool" and load(folder).draft == {}

    session(folder, change, SMALL)
    session(folder, clear, SMALL)


@pytest.mark.parametrize("draft", [[], "x", {"a.jsonl": "pool"}, {"a.jsonl": {"use": 3}}, {"": {"test": 1}}])
def test_a_draft_that_is_none_is_ignored(here: Path, draft: Any) -> None:
    write(here / "a.jsonl", "question", "answer")
    (here / "w").mkdir()
    (here / "w" / "review.json").write_text(json.dumps({"draft": draft}))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(app.screen, IndexForm) and app.screen.files.use("a.jsonl") == "pool"

    session(here / "w", script, SMALL)


@pytest.mark.parametrize("path", [
    "https://example.com/pool.jsonl", "HTTPS://example.com/pool.jsonl", "s3://bucket/pool.jsonl?endpoint_override=evil",
    "hf://org/name", "sql:pool.db?SELECT 1", "--engine-address=evil:6379", "/etc/passwd", "~/pool.jsonl",
    "../pool.jsonl", "a/../../pool.jsonl", "C:/pool.jsonl", "\\\\host\\pool.jsonl",
])  # fmt: skip
def test_a_strangers_draft_names_no_file_elsewhere_no_address_and_no_option(tmp_path: Path, path: str) -> None:
    (tmp_path / "review.json").write_text(
        json.dumps({"draft": {path: {"use": "pool"}, "a b/c.jsonl": {"use": "test"}}})
    )
    assert load(tmp_path).draft == {"a b/c.jsonl": {"use": "test"}}


@pytest.mark.parametrize(
    ("count", "size"), [(0, SMALL), (1, SMALL), (12, SMALL), (12, (60, 16)), (12, (200, 50)), (200, SMALL)]
)
def test_files_and_their_columns_are_readable_at_every_size(here: Path, count: int, size: tuple[int, int]) -> None:
    for i in range(count):
        write(here / f"export {i:03}.jsonl", "Customer Message", "Intent Label", count=2)

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        name = {0: "no file here", 200: "*.jsonl"}.get(count, "export 000.jsonl")
        assert name in text_of(app) and ("200 files" in text_of(app)) == (count == 200)
        await pilot.press("enter")
        await settled(pilot)
        assert name in text_of(app) and "⏎ Continue" in lines_of(app)[-1]
        assert ("label 0" in text_of(app)) == (count > 0)
        assert count == 0 or app.screen.query_one(LineTable).count == (1 if count == 200 else count)

    session(here / "w", script, size)


def test_the_form_looks_into_files_for_which_the_first_screen_had_no_time(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here / "a.jsonl", "question", "answer")
    write(here / "dev.jsonl", "question", "answer")
    monkeypatch.setattr(first, "files_here", partial(files_here, seconds=0))

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        assert "a.jsonl" in text_of(app) and "question" not in text_of(app)
        await pilot.press("j", "enter")
        await settled(pilot)
        form = app.screen
        assert isinstance(form, IndexForm) and form.path == "dev.jsonl"
        assert (form.files.used("pool"), form.files.used("validation")) == (["a.jsonl"], ["dev.jsonl"])

    session(here / "w", script, SMALL)


def test_a_served_session_lists_no_files(here: Path) -> None:
    write(here / "a.jsonl", "question", "answer")

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        assert "a.jsonl" not in text_of(app) and "no workspace" in text_of(app)
        await go(app, pilot, "overview")
        await pilot.press("j", "up", "enter", "d", "I")
        await settled(pilot)
        assert not isinstance(app.screen, IndexForm) and "a.jsonl" not in text_of(app)

    session(here / "w", script, SMALL, limited=True)
