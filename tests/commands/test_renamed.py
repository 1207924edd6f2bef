"""Spellings of the last release: each is the same command with the same options as it is spelled now."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from factories.commands import Run
from icl_curate.cli import app

OLD = {
    "prune --tune -m bm25 --propose -n 60": "tune -m bm25 --propose --limit 60",
    "prune --tune --by served --relabel": "tune --relabel",
    "prune --tune --by vote --dry-run": "tune vote --dry-run",
    "prune --by=vote --tune -k 3": "tune vote -k 3",
    "prune --reason x --proposed": "tune apply --reason x",
    "prune --suspects --sure 0.8": "suspects prune --sure 0.8",
    "prune --misleading --dry-run": "flips prune --dry-run",
    "-q prune --undo --json": "-q undo --json",
    "demos --suspects --source a --limit 3": "suspects --source a -n 3",
    "demos --misleading --limit=3": "flips --misleading -n 3",
    "demos --helpful": "flips --helpful",
    "demos --flips r1 --json": "flips show r1 --json",
    "demos --flips=r1": "flips show r1",
    "demos --limit 5": "demos --rows 5",
    "check --accept label,leak --kind label,leak -k 3": "check prune label,leak --kind label,leak -k 3",
    "check --relabel --sure 0.7 --dry-run": "check relabel --sure 0.7 --dry-run",
    "check --row r1": "suspects show r1",
    "check --skipped --limit 4": "skipped -n 4",
    "calibrate 'a question' --rounds 2": "calibrate query 'a question' --rounds 2",
    "calibrate - --json": "calibrate query - --json",
    "calibrate --validation -n 5 --by kind": "calibrate --split validation --limit 5 --by kind",
    "calibrate --validation --keys -n 5": "calibrate keys --split validation --limit 5",
    "calibrate --split test --runs --json": "calibrate runs --split test --json",
    "evaluate -n 5": "evaluate --limit 5",
    "train ranker -n5": "train ranker --limit 5",
    "watch q.jsonl -n 7": "watch q.jsonl --limit 7",
    "history --limit 2": "history -n 2",
}


def understood(line: str) -> tuple[str, list[dict[str, Any]]]:
    """The command that a line runs, and the options of each level; nothing is run."""
    words = shlex.split(line)
    context = typer.main.get_command(app).make_context("icl-curate", words)
    given: list[dict[str, Any]] = [context.params]
    rest = [*context._protected_args, *context.args]
    while rest and hasattr(context.command, "commands"):
        name, command, rest = context.command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
        given.append(context.params)
        rest = [*context._protected_args, *context.args]
    return context.command_path, given


@pytest.mark.parametrize("old", OLD)
def test_an_old_spelling_is_the_command_as_it_is_spelled_now(old: str) -> None:
    assert understood(old) == understood(OLD[old])


def test_an_old_spelling_runs_decides_and_is_a_job(run: Run, taught: Path) -> None:
    where = ("-w", taught)
    new = run("flips", "--misleading", "-n", 2, *where, "--json").json
    assert new["demonstrations"] and run("demos", "--misleading", "--limit", 2, *where, "--json").json == new
    assert run("prune", "--source", "noisy", *where).code == 0
    assert run("prune", "--undo", "--json", *where).json["action"] == "undo"


def test_options_before_a_command_below_are_refused_and_not_lost(run: Run, taught: Path) -> None:
    for words in (
        ("tune", "--dry-run", "apply"),
        ("check", "--kind", "leak", "prune", "leak"),
        ("jobs", "--json", "follow"),
    ):
        done = run(*words, "-w", taught)
        assert done.code == 2 and f"{words[1]} stands before '" in done.err
