"""Calls that a plan says are made at most: the plans of commands, carried out with the offline reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories.commands import Run
from factories.gullible_world import make_gullible_world
from factories.usage import calls_in, usage_in
from icl_curate.engine.store.workspace import Workspace

SERVED = ("-m", "bm25", "-k", "3")


@pytest.mark.parametrize(
    "words",
    [
        ("tune", *SERVED, "--propose"),
        ("tune", *SERVED, "--propose", "--relabel"),
        ("curate", "--max-calls", "160", *SERVED, "--yes"),
        ("curate", "--max-calls", "100", *SERVED, "--yes"),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_no_plan_is_exceeded(tmp_path: Path, run: Run, words: tuple[str, ...]) -> None:
    workspace: Workspace = make_gullible_world(tmp_path / "w")
    more = ("-w", workspace.path, "--llm", "offline")
    said = run(*words, *more, "--dry-run", "--json").json["to_ask"]
    assert not usage_in(workspace) and said > 0
    ran = run(*words, *more, "--json")
    assert ran.code == 0, ran.err
    assert 0 < calls_in(workspace) <= said
