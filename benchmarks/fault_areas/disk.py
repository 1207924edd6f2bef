"""A full disk: a small file system for every case, filled up to a given rest, where the user may mount one.

Judged: no traceback, one line; with room again the same command ends well, decisions are there, and no more answers
were paid for and lost than were in flight when the disk was full.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .harness import Result, Tally, complaint, scratch, wanted
from .kills import FLIGHTS, Place, agree, decisions
from .server import StubServer
from .world import LABELS, MARKER, World, asking, must, queries, rows, write_rows

SIZE = 48 << 20
KIB = 1024


@dataclass
class Case:
    """A command with so many bytes of room. ``reads``: it must work all the same."""

    name: str
    template: str
    room: int
    words: Callable[[Place], Sequence[object]]
    prepare: Callable[[Place], None] = lambda place: None
    reads: bool = False
    decides: int = 0
    target: str = ""


def cases() -> list[Case]:
    def changed(place: Place) -> None:
        write_rows(place.folder / "p.jsonl", rows(80)[5:] + rows(300, 9, "n"))
        write_rows(place.folder / "v.jsonl", queries(16, 1, "v"))

    def again(place: Place) -> Sequence[object]:
        return ("index", place.folder / "p.jsonl", "--validation", place.folder / "v.jsonl")

    def evaluate(place: Place) -> Sequence[object]:
        return asking(place.server, "evaluate", "-m", "zero,random,bm25", "--seeds", "2")

    def sources(place: Place) -> Sequence[object]:
        return asking(place.server, "train", "sources", "-b", "6", "--ranking", "bm25")

    def ranker(place: Place) -> Sequence[object]:
        return asking(place.server, "train", "ranker", "--epochs", "1", "--limit", "10", "--batch", "5")

    def topics(place: Place) -> Sequence[object]:
        return asking(place.server, "train", "topics", "--sample", "40", "--questions", "24", "--epochs", "3")

    def calibrate(place: Place) -> Sequence[object]:
        return asking(place.server, "calibrate", "--split", "validation", "--limit", "4", "-r", "2", "-m", "bm25")

    def export(form: str, name: str) -> Callable[[Place], Sequence[object]]:
        return lambda place: ("export", place.workspace.parent / name, "-f", form, "--force")

    def exported(form: str, name: str) -> Callable[[Place], None]:
        return lambda place: (must(place.run("export", place.workspace.parent / name, "-f", form)), None)[1]

    def plain_index(place: Place) -> Sequence[object]:
        return ("index", place.world.pool, "--validation", place.world.validation, "--no-encode")

    def full_index(place: Place) -> Sequence[object]:
        return ("index", place.world.pool, "--validation", place.world.validation)

    def prune(place: Place) -> Sequence[object]:
        return ("prune", "--source", "crowd", "--reason", "third")

    def prune_many(place: Place) -> Sequence[object]:
        return ("prune", "--reason", "r" * 40_000, *[w for i in range(40, 80) for w in ("--demo", f"d{i}")])

    return [
        Case("index new", "new", 0, plain_index),
        Case("index new, 64 KiB", "new", 64 * KIB, plain_index),
        Case("index new, 700 KiB", "new", 700 * KIB, full_index),
        Case("index new, 2 MiB", "new", 2048 * KIB, full_index),
        Case("index changed", "full", 0, again, changed),
        Case("index changed, 256 KiB", "full", 256 * KIB, again, changed),
        Case("index changed, 900 KiB", "full", 900 * KIB, again, changed),
        Case("prune", "plain", 0, prune, decides=3),
        Case("prune many, 16 KiB", "plain", 16 * KIB, prune_many, decides=3),
        Case("undo", "plain", 0, lambda p: ("undo",)),
        Case("restore, 4 KiB", "plain", 4 * KIB, lambda p: ("restore", "--source", "archive"), decides=3),
        Case("evaluate", "plain", 0, evaluate),
        Case("evaluate, 64 KiB", "plain", 64 * KIB, evaluate),
        Case("evaluate, 200 KiB", "plain", 200 * KIB, evaluate),
        Case("evaluate, 600 KiB", "plain", 600 * KIB, evaluate),
        Case("train sources, 100 KiB", "plain", 100 * KIB, sources),
        Case("train ranker, 64 KiB", "encoded", 64 * KIB, ranker),
        Case("train ranker, 700 KiB", "encoded", 700 * KIB, ranker),
        Case("train topics, 300 KiB", "encoded", 300 * KIB, topics),
        Case("train topics, 1 MiB", "encoded", 1024 * KIB, topics),
        Case("calibrate, 64 KiB", "plain", 64 * KIB, calibrate),
        Case("export jsonl", "plain", 4 * KIB, export("jsonl", "o.jsonl"), exported("jsonl", "o.jsonl"),
             target="o.jsonl"),
        Case("export parquet", "plain", 0, export("parquet", "o.parquet"), exported("parquet", "o.parquet"),
             target="o.parquet"),
        Case("export hf", "plain", 0, export("hf", "o"), exported("hf", "o"), target="o"),
        Case("jobs start", "plain", 0, lambda p: (*evaluate(p), "--background")),
        Case("llm check", "plain", 0, lambda p: ("llm", "check", "--llm", "openai:stub", "--base-url", p.server.url)),
        Case("preview set-bsr", "encoded", 0, lambda p: ("preview", "my parcel", "-m", "set-bsr")),
        Case("status", "plain", 0, lambda p: ("status",), reads=True),
        Case("preview bm25", "full", 0, lambda p: ("preview", "my parcel", "-m", "bm25"), reads=True),
    ]  # fmt: skip


def run(world: World, seed: int, short: bool, workers: int) -> list[Tally]:
    tally = Tally("disk")
    with scratch(world.root, "mount") as folder:
        try:
            with small_disk(folder):
                pass
        except (OSError, subprocess.CalledProcessError) as error:
            tally.notes.append(f"not possible here: no file system may be mounted ({error})")
            return [tally]
    planned = [case for case in cases() if wanted(case.name)][:: 5 if short else 1]
    with ThreadPoolExecutor(workers) as several:
        for case, problems in zip(planned, several.map(lambda case: one(world, case), planned), strict=True):
            tally.case(case.name, problems, f"{case.room:,} bytes left on the workspace's file system")
    return [tally]


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    disk = folder / "disk"
    disk.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "faults", str(disk)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False, capture_output=True)


def fill(disk: Path, room: int) -> Path:
    """Leave so many bytes free; returns the file that takes the rest."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(b"\0" * (1 << 20))
        with suppress(OSError):
            while True:
                file.write(b"\0" * 4096)
        file.truncate(max(0, file.tell() - room))
    return ballast


def one(world: World, case: Case) -> list[str]:
    with scratch(world.root, "disk") as folder, small_disk(folder) as disk, StubServer(LABELS, MARKER, 0.02) as server:
        workspace = disk / "w"
        if case.template != "new":
            world.copy(getattr(world, case.template), disk)
        place = Place(world, folder, workspace, server)
        case.prepare(place)
        ballast = fill(disk, case.room)
        found = place.run(*case.words(place), limit=90)
        problems = [complaint(found)]
        if case.reads and found.code:
            problems.append(f"reading needs room: {found.line}")
        if case.target and (why := agree(disk / case.target)):
            problems.append(why)
        ballast.unlink()
        again = place.run(*case.words(place), limit=120)
        if again.code and not (found.code == 0 and case.decides):
            problems.append(complaint(again) or f"does not go on with room again: {again.line}")
        return problems + kept(case, place) + wasted(case, place, found)


def kept(case: Case, place: Place) -> list[str]:
    if case.template != "plain" or "undo" in case.name:
        return []
    found = [decision[2] for decision in decisions(place.commands, place.workspace)]
    return [] if found[:2] == ["first", "second"] and len(found) >= case.decides else [f"decision lost: {found}"]


def wasted(case: Case, place: Place, found: Result) -> list[str]:
    twice = place.server.paid_twice()
    if twice > FLIGHTS:
        return [f"paid twice: {twice} answers, {FLIGHTS} in flight when the disk was full"]
    hidden = [p.name for p in place.workspace.parent.iterdir() if p.name.startswith(".")]
    return [f"left behind: {', '.join(hidden)}"] if hidden else []
