"""The dialog in which a person verifies rows."""

from __future__ import annotations

import errno
import json
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from factories.copies import indexed, lines
from factories.patience import PATIENCE
from factories.reviewing import go, lines_of, notified, session, settled, text_of, until
from icl_curate.engine.export import verified
from icl_curate.engine.export.verified import Verification, drawn
from icl_curate.engine.store.demonstrations import fetch
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs import verify
from icl_curate.tui.dialogs.dialog import Confirm, Pick, Write
from icl_curate.tui.dialogs.run import CommandDialog
from icl_curate.tui.dialogs.verify import Verify

ROWS = [
    {
        "id": f"d{i}",
        "input": f"the {['red', 'green', 'blue', 'cyan'][i % 4]} thing {i * 31}",
        "output": f"label {i % 3}",
    }
    for i in range(24)
]


@pytest.fixture(autouse=True)
def _keys_come_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "REPEATED", 0.0)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.chdir(tmp_path)
    return indexed(tmp_path / "w", 0.99, pool=lines(ROWS))


def verdicts(file: Path) -> dict[str, str]:
    records = map(json.loads, file.read_text().splitlines())
    return {record["id"].removeprefix("verified-"): record["output"] for record in records}


async def shows(app: ReviewApp, pilot: Any, name: str) -> None:
    """Wait until the row is on the screen."""
    await until(pilot, lambda: isinstance(app.screen, Verify) and f"{name}  from" in text_of(app), name)
    await settled(pilot)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_rows_are_judged_one_by_one(made: Workspace, tmp_path: Path, size: tuple[int, int]) -> None:
    file, order = tmp_path / "v.jsonl", fetch(made, drawn(made))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await shows(app, pilot, order[0].id)
        assert "1 of 3" in text_of(app) and order[0].input in text_of(app) and order[0].output in text_of(app)
        assert "Right" in lines_of(app)[-1] and "Unclear" in lines_of(app)[-1]
        await pilot.press("enter")
        await shows(app, pilot, order[1].id)
        assert "2 of 3" in text_of(app) and verdicts(file) == {order[0].id: order[0].output}
        await pilot.press("u")
        await shows(app, pilot, order[0].id)
        assert verdicts(file) == {}
        await pilot.press("u")
        await until(pilot, lambda: "nothing to take back" in notified(app))
        await pilot.press("s")
        await shows(app, pilot, order[1].id)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Pick))
        await settled(pilot)
        other = next(f"label {i}" for i in range(3) if f"label {i}" != order[1].output)
        await pilot.press(*other.replace(" ", ""), "enter")
        await shows(app, pilot, order[2].id)
        assert verdicts(file) == {order[1].id: other}
        for row in order[2:4]:
            await shows(app, pilot, row.id)
            await pilot.press("enter")
        await until(pilot, lambda: app.return_code is not None or not app.is_running, "the end after three")

    session(made.path, script, size, only=partial(Verify, Verification(made, file, 3)))
    assert [*verdicts(file)] == [row.id for row in order[1:4]]


def test_that_nothing_can_be_taken_back_is_told_when_the_next_key_counts(
    made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, counts = Verification(made, tmp_path / "v.jsonl", 3), list[bool]()
    monkeypatch.setattr(Verify, "notify", lambda self, message: counts.append(self._shown))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await until(pilot, lambda: drawn.row is not None and drawn.row.id in text_of(app))
        await pilot.press("u")
        await until(pilot, lambda: counts)

    session(made.path, script, only=partial(Verify, drawn))
    assert counts == [True]


def test_a_key_is_meant_for_the_row_that_is_shown(
    made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever presses Enter twice has not seen the second row."""
    file = tmp_path / "v.jsonl"

    async def script(app: ReviewApp, pilot: Any) -> None:
        await shows(app, pilot, fetch(made, drawn(made))[0].id)
        for _ in range(5):
            app.screen.action_right()  # type: ignore[attr-defined]
        await until(pilot, lambda: "2 of 9" in text_of(app))
        assert len(verdicts(file)) == 1

    session(made.path, script, only=partial(Verify, Verification(made, file, 9)))


def test_problems_opens_it_and_the_file_is_indexed_next(made: Workspace, tmp_path: Path) -> None:
    order = fetch(made, drawn(made))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "problems")
        await pilot.press("t")
        await shows(app, pilot, order[0].id)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, Verify))
        assert not isinstance(app.screen, CommandDialog), "nothing was verified"
        await pilot.press("t")
        await shows(app, pilot, order[0].id)
        await pilot.press("enter")
        await shows(app, pilot, order[1].id)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(app.screen, Confirm) and "Read 1 verified row as" in text_of(app), "Enter confirms nothing"
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, CommandDialog))
        assert "index --validation verified.jsonl" in text_of(app)

    session(made.path, script)
    assert len(verdicts(tmp_path / "verified.jsonl")) == 1


def test_the_messages_before_are_seen_as_they_are_certified(tmp_path: Path) -> None:
    said = {"user": "the first words", "assistant": "and their reply"}
    turns = [{"role": role, "content": content} for role, content in said.items()]
    row = {"id": "c", "input": "do it", "output": "ok", "history": turns}
    made = indexed(tmp_path / "w", pool=lines([row]))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await shows(app, pilot, "c")
        assert "user: the first words" in text_of(app) and "assistant: and their reply" in text_of(app)

    session(made.path, script, only=partial(Verify, Verification(made, tmp_path / "v.jsonl")))


def test_a_served_session_writes_no_file(made: Workspace, tmp_path: Path) -> None:
    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "problems")
        await pilot.press("t")
        await until(pilot, lambda: "served session cannot run 'verify'" in notified(app))
        assert not isinstance(app.screen, Verify)

    session(made.path, script, limited=True)


def test_a_file_of_somebody_elses_is_refused_in_one_notice(made: Workspace, tmp_path: Path) -> None:
    (file := tmp_path / "verified.jsonl").write_text('{"id": "x"}\n')

    async def script(app: ReviewApp, pilot: Any) -> None:
        await until(pilot, lambda: "was not written by verify" in notified(app))

    session(made.path, script, only=Verify)
    assert file.read_text() == '{"id": "x"}\n'


def test_a_row_whose_file_was_changed_elsewhere_waits(made: Workspace, tmp_path: Path) -> None:
    file, order = tmp_path / "verified.jsonl", fetch(made, drawn(made))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await shows(app, pilot, order[0].id)
        Verification(made, file).verify("label 0")  # in another terminal
        await pilot.press("enter")
        await until(pilot, lambda: "was changed meanwhile" in notified(app))
        await shows(app, pilot, order[0].id)

    session(made.path, script, only=Verify)
    assert verdicts(file) == {order[0].id: "label 0"}


def test_a_verdict_that_cannot_be_saved_keeps_its_row(made: Workspace, tmp_path: Path) -> None:
    file, order = tmp_path / "v.jsonl", fetch(made, drawn(made))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await shows(app, pilot, order[0].id)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(verified, "replace_file", full)
            await pilot.press("enter")
            await until(pilot, lambda: "no space left" in notified(app))
        await shows(app, pilot, order[0].id)
        await pilot.press("enter")
        await shows(app, pilot, order[1].id)

    session(made.path, script, only=partial(Verify, Verification(made, file)))
    assert Verification(made, file).verified == 1


@pytest.mark.parametrize("label", ["lab", "x"])
def test_a_label_that_no_row_has_can_be_written(made: Workspace, tmp_path: Path, label: str) -> None:
    file, order = tmp_path / "v.jsonl", fetch(made, drawn(made))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await shows(app, pilot, order[0].id)
        await pilot.press("e", *label)
        await until(pilot, lambda: isinstance(app.screen, Pick) and bool(app.screen._shown))
        shown = app.screen._shown  # type: ignore[attr-defined]
        assert (shown[-1].label, shown[-1].note) == (label, "new")
        for _ in shown[1:]:  # labels of the pool that fit stand before it
            await pilot.press("down")
        await pilot.press("enter")
        await shows(app, pilot, order[1].id)

    session(made.path, script, only=partial(Verify, Verification(made, file)))
    assert verdicts(file) == {order[0].id: label}


def test_a_label_that_there_is_is_not_new(made: Workspace, tmp_path: Path) -> None:
    order = fetch(made, drawn(made))
    other = next(f"label {i}" for i in range(3) if f"label {i}" != order[0].output)

    async def script(app: ReviewApp, pilot: Any) -> None:
        await shows(app, pilot, order[0].id)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Pick) and bool(app.screen._shown))
        await pilot.press(*(key if key != " " else "space" for key in other))
        await settled(pilot)
        assert [option.label for option in app.screen._shown] == [other]  # type: ignore[attr-defined]
        await pilot.press("escape")

    session(made.path, script, only=partial(Verify, Verification(made, tmp_path / "v.jsonl")))


def test_enter_held_down_judges_one_row(made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "REPEATED", 1e9)
    file, order = tmp_path / "v.jsonl", fetch(made, drawn(made))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await shows(app, pilot, order[0].id)
        await pilot.press("enter")
        await shows(app, pilot, order[1].id)
        await pilot.press("enter", "enter")
        await settled(pilot)
        await shows(app, pilot, order[1].id)

    session(made.path, script, only=partial(Verify, Verification(made, file)))
    assert verdicts(file) == {order[0].id: order[0].output}


def test_an_output_of_several_lines_is_corrected_in_them(tmp_path: Path) -> None:
    rows = [{"id": f"c{i}", "input": f"do {i * 31}", "output": f"one\n\x1b[31mtwo {i}"} for i in range(3)]
    made = indexed(tmp_path / "w", 0.99, pool=lines(rows))
    file, order = tmp_path / "v.jsonl", fetch(made, drawn(made))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await shows(app, pilot, order[0].id)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Write))
        await settled(pilot)
        assert "␛[31mtwo" in text_of(app), "what a terminal would obey is made visible"
        await pilot.press("escape")
        await shows(app, pilot, order[0].id)
        assert not file.exists()
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Write))
        await pilot.press("?", ":", "enter", "ctrl+s")
        await shows(app, pilot, order[1].id)

    session(made.path, script, only=partial(Verify, Verification(made, file)))
    assert verdicts(file) == {order[0].id: f"?:\n{order[0].output}"}


def test_escape_waits_for_the_verdict_before_it(made: Workspace, tmp_path: Path) -> None:
    returned: list[int | None] = []

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "problems")
        dialog = Verify(Verification(made, tmp_path / "v.jsonl"))
        app.push_screen(dialog, returned.append)
        await shows(app, pilot, fetch(made, drawn(made))[0].id)
        dialog.action_right()
        dialog.action_close()
        await until(pilot, lambda: bool(returned))

    session(made.path, script)
    assert returned == [1] and len(verdicts(tmp_path / "v.jsonl")) == 1


@pytest.mark.parametrize(("count", "leaves"), [(1, False), (9, True)])
def test_help_over_a_verdict_leaves_nothing_unseen_to_judge(
    made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, leaves: bool
) -> None:
    """Help comes while the verdict is being written: the last one, or one with Escape behind it."""
    written, replace_file = threading.Event(), verified.replace_file

    def slowly(*given: Any) -> None:
        assert written.wait(PATIENCE)
        replace_file(*given)

    monkeypatch.setattr(verified, "replace_file", slowly)

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "problems")
        app.push_screen(dialog := Verify(Verification(made, tmp_path / "v.jsonl", count)))
        await shows(app, pilot, fetch(made, drawn(made))[0].id)
        dialog.action_right()
        if leaves:
            dialog.action_close()
        await dialog.action_help()
        written.set()
        await until(pilot, lambda: (tmp_path / "v.jsonl").exists() and app.screen is not dialog)
        await settled(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)

    session(made.path, script)
    assert len(verdicts(tmp_path / "v.jsonl")) == 1


def test_leaving_without_a_verdict_asks_nothing_though_the_file_has_some(made: Workspace, tmp_path: Path) -> None:
    Verification(made, tmp_path / "verified.jsonl").verify("label 0")

    async def script(app: ReviewApp, pilot: Any) -> None:
        await go(app, pilot, "problems")
        await pilot.press("t")
        await shows(app, pilot, fetch(made, drawn(made))[1].id)
        await pilot.press("escape")
        await settled(pilot)
        assert len(app.screen_stack) == 1

    session(made.path, script)


def test_line_breaks_that_would_change_are_refused(tmp_path: Path) -> None:
    made = indexed(tmp_path / "w", 0.99, pool=lines([{"id": "c", "input": "do it", "output": "one\r\ntwo\nthree"}]))

    async def script(app: ReviewApp, pilot: Any) -> None:
        await shows(app, pilot, "c")
        await pilot.press("e")
        await until(pilot, lambda: "line breaks cannot be kept" in notified(app))
        assert "icl-curate relabel c OUTPUT" in notified(app)
        await shows(app, pilot, "c")

    session(made.path, script, only=partial(Verify, Verification(made, tmp_path / "v.jsonl")))
    assert not (tmp_path / "v.jsonl").exists()
