"""What a served session refuses: commands, paths, other LLMs. The workspace's own work goes on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from factories.jobs_world import evaluation, leave_nothing_running, make_pool
from factories.reviewing import go, notified, offered, session, settled, text_of, until
from factories.servers import Server
from icl_curate.cli import app as command_line
from icl_curate.engine.jobs import folder as folders
from icl_curate.engine.jobs import start as starting
from icl_curate.engine.jobs.kinds import JobCommand
from icl_curate.engine.jobs.lock import wait_for
from icl_curate.engine.jobs.served import FIX, WORK, refused
from icl_curate.engine.store.workspace import Workspace
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.run import CommandDialog
from icl_curate.tui.dialogs.start import Start, propose
from icl_curate.tui.widgets.field import Field
from textual.pilot import Pilot
from typer.main import get_command

pytestmark = pytest.mark.usefixtures("nobody_waits")

FREE = {
    "train sources -b 20 -k 3 --limit 10 --ranking bm25 --max-calls 100 --max-cost=1.5",
    "train ranker --epochs 3 --batch 20 --rate 1e-3 --rouge 0.5 -m promptpg --order best-first",
    "train topics --size 50 --no-llm-topics --sample 100 --questions 10 --lambda 0.5 --seed 7",
    "train all",
    "calibrate keys --split validation --limit 5",
    "tune --propose -m bm25 -k 5 --limit 60 --noise 1.6 --max-calls 500",
    "curate --max-calls 600 --next --hold --yes --method bm25 --shots 3 --noise 1.645",
    "evaluate -m zero,bm25 --seeds 3 --split test --answers score -j 4",
    "calibrate --split validation -r5 --stop-early --arms full,plain --uncertainty self-consistency --over documents",
    "evaluate --metric json-f1 --read number --least=0.8",
    "index",
}
REFUSED = {
    "",
    "export curated.jsonl",
    "tune vote",
    "tune apply",
    "prune --tune",
    "curate --accept",
    "curate --max-calls 600 --yes --llm openai:x",
    "prune --source x",
    "undo",
    "llm check",
    "config",
    "review --serve 1",
    "jobs resume 1",
    "index pool.jsonl",
    "index --encoder other",
    "evaluate --llm openai:gpt-4o",
    "evaluate --llm=openai:gpt-4o",
    "evaluate --metric os:system",
    "evaluate --metric=os:system",
    "evaluate --read regex:(a+)+",
    "evaluate --judge-llm openai:dear",
    "evaluate --base-url http://evil.example/v1",
    "evaluate -w elsewhere",
    "evaluate -welsewhere",
    "evaluate --workspace=elsewhere",
    "evaluate -m zero --llm openai:x",
    "train ranker --from /other",
    "train ranker --from=other",
    "train topics --topics names.txt",
    "calibrate -",
    "calibrate ../x",
    "evaluate --device cuda",
    "evaluate --price-in 0",
    "train sources --limit /etc/passwd",
    "--help",
}


@pytest.mark.parametrize("typed", sorted(FREE))
def test_the_workspaces_own_work_is_free(typed: str) -> None:
    assert refused(shlex.split(typed)) is None


@pytest.mark.parametrize("typed", sorted(REFUSED))
def test_what_could_name_a_path_a_server_or_a_model_is_refused(typed: str) -> None:
    why = refused(shlex.split(typed))
    assert why is not None
    assert why.fix == "run it in a terminal, or serve with --allow-commands"


def test_options_are_refused_unless_they_are_known_to_be_harmless() -> None:
    """Whatever the commands learn to take later: it is looked at before a visitor may use it."""
    found: dict[str, set[str]] = {"free": set(), "refused": set()}
    root: Any = get_command(command_line)
    for name in WORK:
        command = root.commands[name]
        for leaf in getattr(command, "commands", {"": command}).values():
            for parameter in leaf.params:
                for option in (*parameter.opts, *parameter.secondary_opts):
                    if option.startswith("-"):
                        allowed = refused(["evaluate", option]) is None
                        found["free" if allowed else "refused"].add(option)
                        if allowed and not option.startswith("--"):  # its value may stand behind it, and nothing else
                            assert not parameter.is_flag
    assert {"--llm", "--base-url", "--workspace", "-w", "--from", "--topics", "--device", "--encoder"} <= found[
        "refused"
    ]
    assert {"--price-in", "--price-out", "--map", "--source", "--context", "--option"} <= found["refused"]
    assert {"--shots", "-k", "--max-calls", "--max-cost", "--methods"} <= found["free"]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    made = make_pool(tmp_path)
    yield made
    leave_nothing_running(made)


async def refusal(app: ReviewApp, pilot: Pilot[None], what: str) -> None:
    await until(pilot, lambda: what in notified(app), f"a refusal of {what}")
    assert FIX in notified(app)
    assert not isinstance(app.screen, (CommandDialog, Start))
    app.notices.clear()


def test_a_served_session_opens_no_way_around(workspace: Workspace, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    job = starting.start(workspace, JobCommand.of(["export", str(out)]))
    wait_for(job.folder)
    out.unlink()

    async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
        await pilot.press("exclamation_mark")
        await refusal(app, pilot, "commands are disabled")
        app.command_line = typer.main.get_command(command_line)
        options = await offered(app, pilot)
        assert (
            "commands are disabled" in options["Run"].off
            and "commands are disabled" in options["icl-curate config"].off
        )
        await go(app, pilot, "export")
        await pilot.press("enter")
        await refusal(app, pilot, "cannot run 'export'")
        await go(app, pilot, "jobs")
        for key in ("r", "e"):  # a job that its owner had started from a terminal
            await pilot.press(key)
            await refusal(app, pilot, "cannot run 'export'")

    session(workspace.path, script, limited=True)
    assert not out.exists()
    assert [job.number for job in folders.jobs(workspace)] == [1]


def test_a_served_session_asks_no_llm_but_its_own(workspace: Workspace, tmp_path: Path) -> None:
    with Server() as server:
        forbidden = [
            " ".join(evaluation(server)),
            f"export {tmp_path / 'out.jsonl'}",
            f"index {tmp_path / 'pool.jsonl'}",
        ]

        async def script(app: ReviewApp, pilot: Pilot[None]) -> None:
            tab = await go(app, pilot, "jobs")
            propose(tab, ["evaluate -m zero --limit 2"])
            await until(pilot, lambda: isinstance(app.screen, Start) and app.screen.costed)
            dialog: Any = app.screen
            field = dialog.query_one(Field)
            for typed in ("evaluate ", "evaluate --llm ", "index ", "index --validation ", "nothing "):
                (tmp_path / "there.jsonl").touch()  # an offer would tell what files there are
                assert not field.completed(f"{typed}{tmp_path}/th")
            for command in forbidden:
                field.value = command
                await pilot.press("enter")
                await until(pilot, lambda: "a served session cannot run" in text_of(app))
                await pilot.press("y")
                assert app.screen is dialog and dialog.costed is None
                await settled(pilot)
            field.value = "evaluate -m zero --limit 2"
            await until(pilot, lambda: "a served session" not in text_of(app))
            await pilot.press("enter")
            await until(pilot, lambda: dialog.costed)

        session(workspace.path, script, limited=True)
        assert server.calls == []
    assert not (tmp_path / "out.jsonl").exists()
