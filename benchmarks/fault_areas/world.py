"""The workspaces that are killed, filled, spoilt and copied, and what must be the same afterwards."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .harness import KEY, Commands, Result, wait_until
from .server import StubServer

MARKER = "quixotry"
"""Stands in every query, so in every prompt of the work."""
LABELS = ("refund", "delivery", "login", "billing")
SOURCES = ("desk", "forum", "crowd", "archive")
WORDS = [
    "parcel",
    "invoice",
    "password",
    "lamp",
    "planter",
    "order",
    "letter",
    "bridge",
    "window",
    "garden",
    "ticket",
    "train",
    "station",
    "holiday",
    "kitchen",
    "battery",
    "cable",
    "screen",
    "button",
    "account",
    "number",
    "street",
    "corner",
    "neighbour",
    "morning",
    "evening",
    "weather",
    "bottle",
    "paper",
    "market",
]
VOLATILE = {"workspace", "decided_at", "created", "started", "ended", "pid", "created_at", "directory", "folder", "log",
            "latency", "seconds", "out", "manifest", "last_seen", "age"}  # fmt: skip
METHODS = ("bm25", "dense", "dpp", "set-bsr", "ranker", "topick")


def rows(count: int, seed: int = 0, prefix: str = "d") -> list[dict[str, str]]:
    """Demonstrations of four sources; every tenth nearly repeats the one before it."""
    draw = random.Random(seed)
    made: list[dict[str, str]] = []
    for i in range(count):
        label = LABELS[i % len(LABELS)]
        words = draw.sample(WORDS, 6)
        text = (
            f"my {words[0]} and the {words[1]} near the {words[2]} {words[3]} asks about {label} {words[4]} {words[5]}"
        )
        if i % 10 == 9:
            text = made[-1]["input"] + " please"
        made.append({"id": f"{prefix}{i}", "input": text, "output": label, "source": SOURCES[i // 2 % len(SOURCES)]})
    return made


def queries(count: int, seed: int, prefix: str) -> list[dict[str, str]]:
    made = rows(count, seed, prefix)
    return [{"id": row["id"], "input": f"{MARKER} {row['input']}", "output": row["output"]} for row in made]


def write_rows(path: Path, made: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")
    return path


@dataclass
class World:
    """Files and workspaces to copy from. ``plain`` is indexed without an encoder, ``encoded`` with one, and ``full``
    was trained, evaluated, calibrated and decided on, with a job done."""

    root: Path
    commands: Commands
    pool: Path
    validation: Path
    test: Path
    plain: Path
    encoded: Path
    full: Path

    def copy(self, template: Path, folder: Path, name: str = "w") -> Path:
        return Path(shutil.copytree(template, folder / name, symlinks=True))

    def index(self, workspace: Path, *more: object) -> tuple[object, ...]:
        return ("index", self.pool, "--validation", self.validation, "--test", self.test, "-w", workspace, *more)


def build(root: Path, commands: Commands) -> World:
    """Make everything once; raises RuntimeError where the tool cannot even do this."""
    folder = root / "world"
    folder.mkdir()
    pool = write_rows(folder / "pool.jsonl", rows(80))
    validation = write_rows(folder / "validation.jsonl", queries(16, 1, "v"))
    test = write_rows(folder / "test.jsonl", queries(16, 2, "t"))
    world = World(root, commands, pool, validation, test, *(folder / name for name in ("plain", "encoded", "full")))
    must(commands.run(*world.index(world.plain, "--no-encode"), limit=120))
    must(commands.run(*world.index(world.encoded), limit=300))
    with_decisions(commands, world.plain)
    shutil.copytree(world.encoded, world.full)
    full = world.full
    must(commands.run("evaluate", "--limit", "4", "-m", "zero,bm25", "--background", "-w", full))
    if not wait_until(lambda: job_states(commands, full)[:1] == ["done"], 120):
        raise RuntimeError("the job did not end")
    assert (full / "jobs" / "1" / "job.json").is_file()  # jobs and runs share their numbers; areas spoil the first
    for words in (
        ("train", "sources", "-b", "8"),
        ("train", "ranker", "--epochs", "2"),
        ("train", "topics"),
        ("evaluate", "--limit", "6", "-m", "zero,random,bm25,dense", "--seeds", "2"),
        ("calibrate", "--split", "validation", "--limit", "2"),
    ):
        must(commands.run(*words, "-w", full, limit=300))
    with_decisions(commands, full)
    for method in METHODS:  # what is built when first wanted
        must(commands.run("preview", QUERY, "-m", method, "-w", full))
    (full / "review.json").write_text(json.dumps({"tab": "demos", "theme": "", "rooms": {"demos": {"source": "desk"}}}))
    (full / "config.toml").write_text('k = 4\nmethod = "bm25"\ninstruction = "Label it."\n')
    return world


def with_decisions(commands: Commands, workspace: Path) -> None:
    must(commands.run("prune", "--source", "archive", "--reason", "first", "-w", workspace))
    must(commands.run("prune", "--demo", "d3", "--reason", "second", "-w", workspace))


def must(found: Result) -> Result:
    if found.code:
        raise RuntimeError(f"{' '.join(found.arguments)}: exit code {found.code}: {found.err[-2000:]}")
    return found


QUERY = "my parcel and the invoice near the window asks about delivery"
NEAR = "my parcel and the invoice near the bridge garden asks about refund ticket train"


def scrub(told: Any) -> Any:
    """What must be equal between two workspaces: no paths, times or process numbers; scores to four digits."""
    if isinstance(told, dict):
        return {name: scrub(value) for name, value in told.items() if name not in VOLATILE}
    if isinstance(told, list):
        return [scrub(value) for value in told]
    return round(told, 4) if isinstance(told, float) else told


def same(told: Any, before: Any) -> bool:
    """Equal but for the last digits of scores, which what is computed anew in another batch may give."""
    if isinstance(told, dict) and isinstance(before, dict):
        return told.keys() == before.keys() and all(same(told[name], before[name]) for name in told)
    if isinstance(told, list) and isinstance(before, list):
        return len(told) == len(before) and all(map(same, told, before))
    if isinstance(told, float) and isinstance(before, float):
        return abs(told - before) <= 5e-4
    return bool(told == before)


VIEWS: dict[str, tuple[str, ...]] = {
    **{f"preview {method}": ("preview", QUERY, "-m", method, "-k", "6") for method in METHODS},
    "preview near": ("preview", NEAR, "-m", "bm25", "-k", "6"),
    "status": ("status",),
    "sources": ("sources",),
    "demos": ("demos", "-n", "1000"),
    "ledger": ("flips", "--misleading"),
    "history": ("history",),
    "topics": ("topics",),
    "gaps": ("topics", "--gaps"),
    "jobs": ("jobs",),
    "config": ("config",),
}
"""Commands that show what a workspace holds."""


def look(commands: Commands, workspace: Path, view: str, **more: Any) -> Result:
    return commands.run(*VIEWS[view], "-w", workspace, "--json", **more)


def seen(commands: Commands, workspace: Path, views: Sequence[str]) -> dict[str, Any]:
    """What each view shows, of a workspace that is known to be sound."""
    return {view: scrub(must(look(commands, workspace, view)).json) for view in views}


def job_states(commands: Commands, workspace: Path) -> list[str]:
    return [job["state"] for job in commands.run("jobs", "-w", workspace, "--json").json.get("jobs", [])]


def decisions(commands: Commands, workspace: Path) -> list[tuple[str, ...]]:
    """Decisions, oldest first: action, targets, reason, whether undone."""
    told = must(commands.run("history", "-n", "1000", "-w", workspace, "--json")).json["history"]
    return [(e["action"], ",".join(e["targets"]), e["reason"], str(e["undone"])) for e in reversed(told)]


def asking(server: StubServer, *words: object, flights: int = 4) -> tuple[object, ...]:
    """A command that asks the stub."""
    more = ("-j", flights) if words[0] not in ("preview", "llm") else ()
    return (*words, "--llm", "openai:stub", "--base-url", server.url, *more)


def with_key(attempts: int = 2, timeout: float = 3.0) -> dict[str, str]:
    """The environment of a user with a key and little patience."""
    return {"OPENAI_API_KEY": KEY, "ICL_CURATE_ATTEMPTS": str(attempts), "ICL_CURATE_TIMEOUT": str(timeout)}
