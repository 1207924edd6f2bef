"""A server that answers the probes and fails at every prompt of the work, by kind and command.

Judged: exit code 3 and one line with the reason, no figure on standard output, no run that counts as done.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from icl_curate.engine.store import runs
from icl_curate.engine.store.workspace import Workspace

from .harness import Tally, complaint, scratch, wanted
from .replies import body, changed, error
from .server import StubServer
from .world import LABELS, World, asking, with_key

ASKED = "asks about"
"""Stands in every row and query of the world, and in no probe."""

KINDS = {
    "400": (error(400, "this parameter is not supported"), "this parameter is not supported"),
    "429": (error(429, "slow down", "rate_limit_exceeded"), "slow down"),
    "500": (error(500, "out of order"), "out of order"),
    "error in 200": (body(b'{"error": {"message": "the upstream is gone"}}'), "the upstream is gone"),
    "filtered": (
        changed(choices__0__finish_reason="content_filter", choices__0__message__content=None),
        "content filter",
    ),
    "too long": (error(400, "maximum context length is 10 tokens", "context_length_exceeded"), "maximum context"),
}
COMMANDS = {
    "evaluate": ("evaluate", "-m", "bm25,zero", "--split", "validation", "--limit", "20"),
    "tune": ("tune", "-m", "bm25", "--limit", "20"),
    "calibrate": (
        "calibrate", "--split", "validation", "--limit", "10", "--rounds", "1",
        "--uncertainty", "self-consistency", "-m", "bm25",
    ),
    "train sources": ("train", "sources", "--ranking", "bm25", "--depth", "2", "--limit", "10"),
    "train rows": ("train", "rows", "--ranking", "bm25", "--limit", "20"),
    "train ranker": ("train", "ranker", "--limit", "20", "--epochs", "1", "--batch", "5", "-k", "2"),
    "train topics": ("train", "topics", "--questions", "20", "--epochs", "1"),
    "curate": ("curate", "--max-calls", "120", "-m", "bm25", "--yes"),
    "preview": ("preview", f"my parcel {ASKED} billing", "--answer", "-m", "bm25"),
    "watch": ("watch", "VALIDATION", "--ask", "-m", "bm25", "--sample", "10"),
}  # fmt: skip
NEEDS_VECTORS = ("train ranker", "train topics")


def run(world: World, seed: int, short: bool, workers: int) -> list[Tally]:
    tally = Tally("failing")
    pairs = [(command, kind) for command in COMMANDS for kind in KINDS if wanted(f"{command}, {kind}")]
    pairs = pairs[:: 8 if short else 1]
    with ThreadPoolExecutor(workers) as several:
        for (command, kind), problems in zip(pairs, several.map(lambda pair: one(world, *pair), pairs), strict=True):
            tally.case(f"{command}, {kind}", problems, f"{command} where the server fails at all prompts: {kind}")
    return [tally]


def one(world: World, command: str, kind: str) -> list[str]:
    """One command against a server that fails in one way."""
    build, reason = KINDS[kind]
    with scratch(world.root, "failing") as folder, StubServer(LABELS, ASKED) as server:
        workspace = world.copy(world.encoded if command in NEEDS_VECTORS else world.plain, folder)
        before = done(workspace)
        server.fault = lambda call: build(call, server)
        words = [world.validation if word == "VALIDATION" else word for word in COMMANDS[command]]
        found = world.commands.run(*asking(server, *words), "-w", workspace, environment=with_key(attempts=1))
        problems = [complaint(found)]
        if found.code != 3:
            problems.append(f"exit code {found.code}: {found.line}")
        elif reason not in found.line:
            problems.append(f"without the reason: {found.line}")
        if "0.000" in found.out:
            problems.append("a figure of nothing on standard output")
        if more := done(workspace) - before:
            problems.append(f"runs count as done: {sorted(more)}")
        return problems


def done(workspace: Path) -> set[int]:
    """The runs that are."""
    return {one.run for one in runs.runs(Workspace.open(workspace)) if one.status == "done"}
