"""Any command run inside ``review``: what it says is shown safely, what it does is seen, leaving stops it."""

from __future__ import annotations

from pathlib import Path

from factories.commands import run_command
from factories.reviewing import SOURCES, is_safe, make_pool, session, text_of, until
from factories.servers import Server
from icl_curate.engine.store import runs
from icl_curate.engine.store.decisions import history
from icl_curate.engine.store.overview import overview
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.run import CommandDialog
from textual.pilot import Pilot
from textual.widgets import Input


async def run_in(app: ReviewApp, pilot: Pilot[None], command: str) -> CommandDialog:
    """Type a command over the one before and wait for its end."""
    dialog = app.screen
    assert isinstance(dialog, CommandDialog)
    dialog.query_one(Input).value = ""
    await pilot.press(*command, "enter")
    await until(pilot, lambda: dialog.code is None)
    await until(pilot, lambda: dialog.code is not None)
    return dialog


def test_what_a_command_says_and_does_is_seen(tmp_path: Path) -> None:
    made = make_pool(tmp_path / "w")
    whole = sum(SOURCES.values())

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("exclamation_mark")
        dialog = await run_in(app, pilot, "icl-curate demos -n 100")
        assert dialog.code == 0
        shown = text_of(app)
        assert is_safe(shown)
        await pilot.press("down", "g")  # to its first line
        assert is_safe(text_of(app))
        await pilot.press("escape")
        told = run_command("config", "-w", made.path).out
        await run_in(app, pilot, "config")
        await pilot.press("down", "G")  # to its last line: it is longer than the screen
        await until(pilot, lambda: told.split()[-1] in text_of(app))
        await pilot.press("escape")
        await pilot.press(*" 'open", "enter")
        await until(pilot, lambda: "close the quotation mark" in text_of(app))
        failed = await run_in(app, pilot, "prune --source nobody")
        assert failed.code == 2
        assert "ended with exit code 2" in text_of(app)
        assert "fix: icl-curate sources" in text_of(app)
        await run_in(app, pilot, "prune --source clean")
        await pilot.press("escape")
        active = f"{whole - SOURCES['clean']:,}"
        await until(pilot, lambda: f"{active} of {whole:,}" in text_of(app))  # the tab behind follows

    session(made.path, script)
    assert overview(made).active == whole - SOURCES["clean"]
    assert [entry.targets for entry in history(made)] == [("clean",)]


def test_leaving_asks_the_command_to_stop(tmp_path: Path) -> None:
    made = make_pool(tmp_path / "w")
    with Server(delay=0.3) as server:

        async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
            await pilot.press("exclamation_mark")
            typed = (
                f"evaluate -m zero --split validation --llm openai:stub --base-url {server.url} -j 1 --answers generate"
            )
            await pilot.press(*typed, "enter")
            await until(pilot, lambda: len(server.asked("query")) >= 2)
            server.delay = 3.0  # all of them would take more than a minute: long enough to hear that it should stop
            await pilot.press("escape")
            assert not isinstance(app.screen, CommandDialog)
            await until(pilot, lambda: runs.runs(made)[0].status != "running")
            assert len(server.asked("query")) < 24
            assert all(call.answered for call in server.asked("query"))

        session(made.path, script)
