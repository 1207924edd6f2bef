"""Several at once: eight commands on one workspace, two that write the same, and copies of a workspace in use."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .harness import Result, Tally, complaint, scratch
from .server import StubServer
from .world import (  # fmt: skip
    LABELS,
    MARKER,
    World,
    asking,
    decisions,
    look,
    must,
    rows,
    same,
    scrub,
    seen,
    with_key,
    write_rows,
)


def run(world: World, seed: int, short: bool, workers: int) -> list[Tally]:
    tally = Tally("together")
    for number in range(1 if short else 4):
        eight(world, tally, number)
    tally.case("two index the same new workspace", two_indexes(world))
    tally.case("two evaluate the same prompts", two_evaluations(world))
    tally.case("eight decide at once", eight_decisions(world))
    held(world, tally)
    copies(world, tally, 4 if short else 20, seed)
    return [tally]


def ended(found: Result) -> str:
    return complaint(found) or (f"exit code {found.code}: {found.line}" if found.code else "")


def eight(world: World, tally: Tally, number: int) -> None:
    """Each of eight commands started together ends well; none needs to know of the others."""
    with scratch(world.root, "eight") as folder, StubServer(LABELS, MARKER, 0.05) as server:
        workspace = world.copy(world.full, folder)
        more = write_rows(folder / "more.jsonl", rows(300, 8, "m"))
        commands: Sequence[Sequence[object]] = (
            ("index", more), ("prune", "--source", "forum", "--reason", "together"), ("status",), ("demos", "-n", "50"),
            ("preview", "my parcel", "-m", "dense"), ("export", folder / "o.jsonl"), ("prune", "--demo", "d20"),
            asking(server, "evaluate", "-m", "zero,random,bm25", "--seeds", "2"),
        )  # fmt: skip
        running = [world.commands.start(*words, "-w", workspace, environment=with_key(6, 20)) for words in commands]
        for words, process in zip(commands, running, strict=True):
            found = process.wait(120)
            tally.case(f"eight at once ({number}): {words[0]} {words[1] if len(words) > 1 else ''}", [ended(found)])
        found = [reason for _, _, reason, _ in decisions(world.commands, workspace)]
        lost = [] if "together" in found or running[1].status else [f"decision lost: {found}"]
        tally.case(f"eight at once ({number}): afterwards", [*lost, ended(look(world.commands, workspace, "status"))])


def two_indexes(world: World) -> list[str]:
    with scratch(world.root, "two") as folder:
        both = [world.commands.start(*world.index(folder / "w", "--no-encode")) for _ in range(2)]
        problems = [ended(process.wait(90)) for process in both]
        views = ("demos", "preview bm25")
        expected = seen(world.commands, _index_again(world, folder / "sound"), views)
        for view in views:
            found = look(world.commands, folder / "w", view)
            problems.append(ended(found))
            if found.code == 0 and not same(scrub(found.json), expected[view]):
                problems.append(f"silent difference in {view}")
        return problems


def _index_again(world: World, workspace: Path) -> Path:
    must(world.commands.run(*world.index(workspace, "--no-encode")))
    return workspace


def two_evaluations(world: World) -> list[str]:
    """Two that ask the same may both pay for what neither has yet, but no prompt more than twice."""
    with scratch(world.root, "two") as folder, StubServer(LABELS, MARKER, 0.05) as server:
        words = (*asking(server, "evaluate", "-m", "zero,bm25"), "-w", world.copy(world.plain, folder))
        both = [world.commands.start(*words, environment=with_key(6, 20)) for _ in range(2)]
        problems = [ended(process.wait(90)) for process in both]
        often = [text for text, count in server.good().items() if count > 2]
        return problems + ([f"paid twice: {len(often)} prompts more than once by each"] if often else [])


def eight_decisions(world: World) -> list[str]:
    with scratch(world.root, "eight") as folder:
        workspace = world.copy(world.plain, folder)
        running = [
            world.commands.start("prune", "--demo", f"d{i}", "--reason", f"n{i}", "-w", workspace)
            for i in range(40, 48)
        ]
        results = [process.wait(90) for process in running]
        found = {reason for _, _, reason, _ in decisions(world.commands, workspace)}
        lost = [
            f"n{i}"
            for i, result in zip(range(40, 48), results, strict=True)
            if result.code == 0 and f"n{i}" not in found
        ]
        return [*map(ended, results), f"decision lost: {lost}" if lost else ""]


def held(world: World, tally: Tally) -> None:
    """Another program has the workspace open for eight seconds: everyone waits for it; and for good: one line that
    says who has it."""
    words: Sequence[Sequence[object]] = (
        ("status",), ("sources",), ("demos",), ("history",), ("preview", "my parcel", "-m", "bm25"), ("jobs",),
        ("prune", "--demo", "d20"), ("export", "o.jsonl"),
    )  # fmt: skip
    program = (
        "import duckdb, sys, time; held = duckdb.connect(sys.argv[1]); print(1, flush=True)"
        "; time.sleep(float(sys.argv[2]))"
    )
    with scratch(world.root, "held") as folder:
        workspace = world.copy(world.plain, folder)
        for seconds in (8, 600):
            holder = subprocess.Popen(
                [sys.executable, "-c", program, str(workspace / "workspace.duckdb"), str(seconds)],
                stdout=subprocess.PIPE,
            )
            try:
                assert holder.stdout is not None
                holder.stdout.readline()
                running = [world.commands.start(*word, "-w", workspace, cwd=folder) for word in words]
                for word, process in zip(words, running, strict=True):
                    found = process.wait(200)
                    if seconds == 8:
                        tally.case(f"held for 8 seconds: {word[0]}", [ended(found)])
                    elif word[0] != "jobs" or found.code:
                        named = "" if str(holder.pid) in found.err else f"does not say who holds it: {found.line}"
                        well = "" if found.code == 5 else f"exit code {found.code}"
                        tally.case(f"held for good: {word[0]}", [complaint(found), named, well])
            finally:
                holder.kill()
                holder.wait()


def copies(world: World, tally: Tally, count: int, seed: int) -> None:
    """Copied file by file while an evaluation and decisions write. A copy opens, with every decision acknowledged
    before it was begun, or says in one line that it does not."""
    draw = random.Random(f"{seed} copies")
    refused = 0
    with scratch(world.root, "copies") as folder, StubServer(LABELS, MARKER, 0.02) as server:
        workspace = world.copy(world.full, folder)
        words = (*asking(server, "evaluate", "-m", "zero,random,bm25,dense", "--seeds", "3"), "-w", workspace)
        for number in range(count):
            busy = world.commands.start(*words, "--seed", number, environment=with_key(6, 20))
            deciding = world.commands.start(
                "prune", "--demo", f"d{number + 20}", "--reason", f"c{number}", "-w", workspace
            )
            time.sleep(draw.uniform(0.1, 2.0))
            acknowledged = _acknowledged(world, workspace)
            copy = folder / f"copy{number}"
            with suppress(shutil.Error, FileNotFoundError):  # a file that went while it was copied
                shutil.copytree(workspace, copy)
            deciding.wait()
            found = look(world.commands, copy, "history")
            problems = [complaint(found)]
            if found.code == 0:
                names = [entry["reason"] for entry in found.json["history"]]
                if lost := set(acknowledged) - set(names):
                    problems.append(f"decision lost in the copy, with exit code 0: {sorted(lost)}")
                problems.append(complaint(world.commands.run("preview", "my parcel", "-m", "dense", "-w", copy)))
            else:
                refused += 1
            tally.case(f"copy of a workspace in use ({number})", problems, "cp -r of the folder while evaluate asks")
            busy.kill()
            busy.wait()
            shutil.rmtree(copy, ignore_errors=True)
    tally.notes.append(f"copies of a workspace in use that were refused with one line: {refused} of {count}")


def _acknowledged(world: World, workspace: Path) -> list[str]:
    found = look(world.commands, workspace, "history")
    return [entry["reason"] for entry in found.json.get("history", [])]
