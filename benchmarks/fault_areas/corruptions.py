"""Damage to every file of a workspace: flipped, zeroed, cut, lengthened, turned, swapped, of wrong types, exchanged.

Judged: the views that rest on the file show what they showed before, or end with exit code ≠ 0 and one line. What a
user writes by hand (config.toml, keys.toml) and what is only remembered (review.json) may show something else.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .harness import Tally, complaint, scratch, wait_until, wanted
from .server import StubServer
from .world import LABELS, MARKER, World, asking, look, must, queries, rows, same, scrub, seen, with_key, write_rows

Damage = Callable[[Path, random.Random], None]
DIMENSION = 384


def flip(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def flip_late(path: Path, draw: random.Random) -> None:
    """In the second half: past every header."""
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data) // 2, len(data))] ^= 0x40
    path.write_bytes(data)


def zero_block(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    at, length = draw.randrange(max(len(data) // 2, 1)), max(1, min(4096, len(data) // 4))
    data[at : at + length] = bytes(length)
    path.write_bytes(data[: path.stat().st_size])


def zero(path: Path, draw: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def half(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def short(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path, draw: random.Random) -> None:
    path.write_bytes(b"")


def longer(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes() + draw.randbytes(DIMENSION * 4))


def turned(path: Path, draw: random.Random) -> None:
    """The first row (of vectors) goes to the end."""
    data, row = path.read_bytes(), min(DIMENSION * 4, path.stat().st_size // 3)
    path.write_bytes(data[row:] + data[:row])


def swapped(path: Path, draw: random.Random) -> None:
    """Two blocks in the second half change places."""
    data, length = bytearray(path.read_bytes()), max(1, min(DIMENSION * 4, path.stat().st_size // 8))
    first, second = len(data) // 2, len(data) - length
    data[first : first + length], data[second : second + length] = data[second:], data[first : first + length]
    path.write_bytes(data)


def noise(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.randbytes(max(16, path.stat().st_size)))


def gone(path: Path, draw: random.Random) -> None:
    path.unlink()


def folder(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir()


def nan(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(8):
        at = draw.randrange(len(data) // 4) * 4
        data[at : at + 4] = struct.pack("<f", float("nan"))
    path.write_bytes(data)


def text(written: str | bytes) -> Damage:
    def damage(path: Path, draw: random.Random) -> None:
        path.write_bytes(written if isinstance(written, bytes) else written.encode())

    return damage


def member(name: str, value: Any) -> Damage:
    """One value of a JSON object changed."""

    def damage(path: Path, draw: random.Random) -> None:
        told = json.loads(path.read_text())
        told[name] = value
        path.write_text(json.dumps(told))

    return damage


def header(value: int) -> Damage:
    """The length of a safetensors header, which its first eight bytes give."""

    def damage(path: Path, draw: random.Random) -> None:
        path.write_bytes(struct.pack("<Q", value) + path.read_bytes()[8:])

    return damage


def header_text(old: bytes, new: bytes) -> Damage:
    def damage(path: Path, draw: random.Random) -> None:
        path.write_bytes(path.read_bytes().replace(old, new, 1))

    return damage


BINARY = (flip, flip_late, zero_block, zero, half, short, empty, longer, turned, swapped, noise, gone, folder)
TEXTUAL = (flip, half, empty, zero, noise, gone, folder)
WRONG = tuple(text(written) for written in ("[]", "null", "7", '"x"', "{", '{"a": ' * 5000, "{}"))
SAFETENSORS = (header(0), header(2**63), header(8), header_text(b"F32", b"I32"), header_text(b"F32", b"F64"))
REVIEW = "review"


@dataclass(frozen=True)
class Target:
    """Files by a pattern in the workspace, what is done to them, and what rests on them. ``same``: a view that works
    must show what it showed."""

    pattern: str
    damages: Sequence[Damage]
    views: tuple[str, ...]
    same: bool = True


NUMBERS: tuple[Any, ...] = (0, -3, 192, None, "384", [384], 1e308, 2**70)
TARGETS = (
    Target("vectors/*/vectors.f32", (*BINARY, nan), ("preview dense", "preview dpp", "preview topick")),
    Target("vectors/*/[er]*.u*", BINARY[:8], ("preview dense", "preview ranker")),
    Target("vectors/*/vectors.json", (*WRONG, half, empty, gone, *(member("dimension", n) for n in NUMBERS),
                                      member("encoder", 5), member("encoder", "../../x"), member("version", "x")),
           ("preview dense", "preview topick")),
    Target("vectors/*/tokens.f16", BINARY, ("preview set-bsr",)),
    Target("vectors/*/tokens.[nu]*", (flip, half, empty, zero, noise, short), ("preview set-bsr",)),
    Target("vectors/*/tokens.json", (*WRONG[:5], half, gone), ("preview set-bsr",)),
    Target("lexical/*", (*BINARY, *SAFETENSORS), ("preview bm25", "preview ranker")),
    Target("minhash.*", BINARY, ("preview near", "preview bm25")),
    Target("ranker/*/ranker.safetensors", (*BINARY, nan, *SAFETENSORS), ("preview ranker",)),
    Target("ranker/*/ranker.json", (*WRONG, half, gone, member("outputs", -1), member("encoder", 5),
                                    member("settings", []), member("candidates", 10**12)), ("preview ranker",)),
    Target("topics/*/topics.safetensors", (*BINARY, nan, *SAFETENSORS), ("preview topick", "gaps")),
    Target("topics/*/rows.safetensors", (*BINARY, *SAFETENSORS[:2]), ("preview topick", "topics")),
    Target("topics/*/topics.json", (*WRONG, half, gone, flip), ("preview topick", "topics", "gaps")),
    Target("workspace.duckdb", (flip, flip, flip, flip_late, flip_late, zero_block, zero_block, half, short, empty,
                                longer, swapped, turned, noise, folder, zero),
           ("status", "demos", "history", "sources", "preview bm25", "ledger")),
    Target("config.toml", (*TEXTUAL, *(text(t) for t in ("k = 'four'", "k = -1", "k = 10000000000000000000000",
           "method = 5", "[k]\nx = 1", "llm = 'offline\x1b[2J'", "k = nan", "temperature = inf",
           "prompt_format = '{x.__class__}'"))), ("config", "preview bm25"), same=False),
    Target("review.json", (*TEXTUAL, *WRONG, text('{"rooms": {"demos": {"source": [1]}, "sources": 5}, "tab": []}'),
                           text('{"tab": "demos", "theme": "\\u001b[2J"}')), (REVIEW,), same=False),
    Target("../home/keys.toml", (text("["), text("[sources]\nprune = 5"), text("sources = 1"), text(b"\xff\xfe\0"),
                                 text('[sources]\nprune = "\\u001b[2J"')), (REVIEW,), same=False),
    Target("jobs/1/job.json", (*TEXTUAL, *WRONG, *(member(n, v) for n, v in (
        ("arguments", 5), ("arguments", [1, None]), ("arguments", "rm -rf"), ("arguments", {"a": 1}),
        ("directory", 7), ("directory", "/nowhere"), ("created", "x"), ("created", 1e300)))), ("jobs", "status"),
           same=False),
    Target("jobs/1/state.json", (*TEXTUAL, *WRONG, *(member(n, v) for n, v in (
        ("pid", "x"), ("pid", -1), ("pid", 2**70), ("ended", "x"), ("code", "0"), ("code", []), ("started", {})))),
           ("jobs", "status"), same=False),
    Target("jobs/1/events.jsonl", (*TEXTUAL, *WRONG[:5], text('{"time": "x", "task": 5, "fields": []}\n' * 5)),
           ("jobs", "follow"), same=False),
    Target("jobs/1/result.json", (half, empty, *WRONG[:5], folder, gone), ("jobs", "follow"), same=False),
    Target("jobs/1/lock", (gone, folder), ("jobs",), same=False),
)  # fmt: skip


def run(world: World, seed: int, few: bool, workers: int) -> list[Tally]:
    tally = Tally("corruptions")
    views = sorted({view for target in TARGETS for view in target.views} - {REVIEW, "follow"})
    sound = seen(world.commands, world.full, views)
    planned = [
        (target, path, damage, number)
        for target in TARGETS
        for path in files_of(world, target)
        for number, damage in enumerate(target.damages)
        if wanted(case_name(world, path, damage, number))
    ][:: 16 if few else 1]

    def one(case: tuple[Target, Path, Damage, int]) -> tuple[str, list[str]]:
        target, path, damage, number = case
        with scratch(world.root, "spoilt") as place:
            (place / "home").mkdir()
            (place / "home" / "keys.toml").write_text("")
            workspace = world.copy(world.full, place)
            inside = path.relative_to(world.full) if path.is_relative_to(world.full) else path
            damage(workspace / inside, random.Random(f"{seed} {inside} {number}"))
            name = case_name(world, path, damage, number)
            try:
                return name, judged(world, workspace, target, sound)
            except RuntimeError as error:
                return name, [str(error)[-200:]]

    absent = [target.pattern for target in TARGETS if not files_of(world, target)]
    if absent:
        tally.notes.append(f"no such files in the workspace: {', '.join(absent)}")
    with ThreadPoolExecutor(workers) as several:
        for name, problems in several.map(one, planned):
            tally.case(name, problems)
    other = world.root / "other"
    if not other.exists():
        _make_other(world, other)
    for name, check in [e for e in EXCHANGES.items() if wanted(e[0])][:: 2 if few else 1]:
        with scratch(world.root, "exchange") as place:
            try:
                problems = check(world, place)
            except RuntimeError as error:
                problems = [f"does not go on: {str(error)[-200:]}"]
            tally.case(name, problems)
    if wanted("workspace.duckdb.wal"):
        log_damages(world, tally, seed, few)
    return [tally]


def files_of(world: World, target: Target) -> list[Path]:
    """Where a pattern names a file of the home, that; where the workspace has no such file, none."""
    return [Path(target.pattern)] if target.pattern.startswith("..") else sorted(world.full.glob(target.pattern))


def case_name(world: World, path: Path, damage: Damage, number: int) -> str:
    inside = path.relative_to(world.full) if path.is_relative_to(world.full) else path
    name = getattr(damage, "__name__", "damage")
    return f"{inside}: {name if name != 'damage' else f'wrong contents {number}'}"


def judged(world: World, workspace: Path, target: Target, sound: dict[str, Any]) -> list[str]:
    problems = []
    for view in target.views:
        if view == REVIEW:
            home = {"ICL_CURATE_CONFIG": str(workspace.parent / "home" / "config.toml"), "TERM": "xterm-256color"}
            found = world.commands.run_on_terminal(
                "review", "-w", workspace, environment=home, typed=b"q", typed_after=2.5, limit=40
            )
            found.err = ""
            problems.append(complaint(found) and f"{view}: {complaint(found)}")
            continue
        if view == "follow":
            found = world.commands.run("jobs", "follow", "1", "-w", workspace, "--json", limit=20)
        else:
            found = look(world.commands, workspace, view)
        why = complaint(found)
        if not why and found.code == 0 and target.same and not same(scrub(found.json), sound[view]):
            why = "silent difference with exit code 0"
        if why:
            problems.append(f"{why} ({view})")
            break
    return problems


# artefacts and databases of different generations


def differs(world: World, workspace: Path, expected: dict[str, Any]) -> list[str]:
    for view, sound in expected.items():
        found = look(world.commands, workspace, view)
        if why := complaint(found):
            return [f"{why} ({view})"]
        if found.code == 0 and not same(scrub(found.json), sound):
            return [f"silent difference with exit code 0 ({view})"]
    return []


SELECTION = ("preview dense", "preview bm25", "preview dpp", "preview near")


def _older_database(world: World, place: Path, between: bool) -> list[str]:
    """An older database is put back (as the tool's own mend advises), and another file indexed."""
    more, other = (write_rows(place / f"{n}.jsonl", rows(12, seed, n)) for n, seed in (("m", 8), ("o", 9)))
    workspace = world.copy(world.encoded, place)
    must(world.commands.run("preview", "x", "-m", "bm25", "-w", workspace))
    kept = place / "kept.duckdb"
    shutil.copy(workspace / "workspace.duckdb", kept)
    must(world.commands.run("index", more, "-w", workspace))
    if between:
        for method in ("bm25", "dense"):
            must(world.commands.run("preview", "x", "-m", method, "-w", workspace))
    shutil.copy(kept, workspace / "workspace.duckdb")
    done = world.commands.run("index", other, "-w", workspace)
    if done.code:
        return [complaint(done)]
    sound = world.copy(world.encoded, place, "sound")
    must(world.commands.run("index", other, "-w", sound))
    return differs(world, workspace, seen(world.commands, sound, SELECTION))


def _older_database_alone(world: World, place: Path) -> list[str]:
    workspace = world.copy(world.encoded, place)
    made = [row | {"input": row["input"][::-1]} if i % 3 else row for i, row in enumerate(rows(80))]
    changed = write_rows(place / "pool.jsonl", made)
    before = seen(world.commands, world.encoded, SELECTION)
    shutil.copy(workspace / "workspace.duckdb", place / "kept.duckdb")
    must(world.commands.run("index", changed, "-w", workspace))
    must(world.commands.run("preview", "x", "-m", "bm25", "-w", workspace))
    shutil.copy(place / "kept.duckdb", workspace / "workspace.duckdb")
    return differs(world, workspace, before)


def _make_other(world: World, folder: Path) -> None:
    """A workspace of as many rows and queries with other texts, and models of its own."""
    draft = folder.with_name("other.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    pool = write_rows(draft / "pool.jsonl", rows(80, 77))
    validation = write_rows(draft / "validation.jsonl", queries(16, 78, "v"))
    test = write_rows(draft / "test.jsonl", queries(16, 79, "t"))
    workspace = draft / "w"
    must(world.commands.run("index", pool, "--validation", validation, "--test", test, "-w", workspace, limit=120))
    must(world.commands.run("train", "ranker", "--epochs", "1", "-w", workspace, limit=120))
    must(world.commands.run("train", "topics", "-w", workspace, limit=180))
    for method in ("set-bsr", "bm25"):
        must(world.commands.run("preview", "x", "-m", method, "-w", workspace))
    draft.rename(folder)


def _exchanged(
    names: Sequence[str], views: Sequence[str], database: bool = False
) -> Callable[[World, Path], list[str]]:
    """Artefacts, or the database, of another workspace of the same size."""

    def check(world: World, place: Path) -> list[str]:
        other, workspace = world.copy(world.root / "other" / "w", place, "other"), world.copy(world.full, place)
        if database:
            expected = seen(world.commands, other, views)
            shutil.copy(other / "workspace.duckdb", workspace / "workspace.duckdb")
            (workspace / "config.toml").unlink()
            return differs(world, workspace, expected)
        expected = seen(world.commands, workspace, views)
        for name in names:
            for theirs in sorted(other.glob(name)):
                ours = next(path for path in workspace.glob(name) if path.name == theirs.name)
                shutil.copy(theirs, ours)
        return differs(world, workspace, expected)

    return check


EXCHANGES: dict[str, Callable[[World, Path], list[str]]] = {
    "older database, then another file": lambda w, p: _older_database(w, p, False),
    "older database after new artefacts, then another file": lambda w, p: _older_database(w, p, True),
    "older database alone": _older_database_alone,
    "vectors of another workspace": _exchanged(("vectors/*/[!t]*.*",), ("preview dense",)),
    "lexical index of another workspace": _exchanged(("lexical/*",), ("preview bm25",)),
    "MinHash of another workspace": _exchanged(("minhash.*",), ("preview near",)),
    "token vectors of another workspace": _exchanged(("vectors/*/tokens.*",), ("preview set-bsr",)),
    "ranker of another workspace": _exchanged(("ranker/*/*.safetensors",), ("preview ranker",)),
    "topics of another workspace": _exchanged(("topics/*/*",), ("preview topick", "topics")),
    "topic rows of another workspace": _exchanged(("topics/*/rows.*",), ("preview topick", "topics")),
    "database of another workspace": _exchanged((), ("preview dense", "preview bm25", "preview near"), True),
}


# the write-ahead log


def crashed(world: World, place: Path) -> Path | None:
    """A workspace whose process was killed while it had a write-ahead log; None where that did not come about."""
    for attempt in range(12):
        workspace = world.copy(world.plain, place, f"crashed{attempt}")
        log = workspace / "workspace.duckdb.wal"
        with StubServer(LABELS, MARKER) as server:
            words = (*asking(server, "evaluate", "-m", "zero,random,bm25", flights=8), "-w", workspace)
            running = world.commands.start(*words, environment=with_key())
            wait_until(lambda r=running, w=log: r.ended.is_set() or (w.exists() and w.stat().st_size > 0), 20)  # type: ignore[misc]
            running.kill()
            running.wait()
        if log.exists() and log.stat().st_size > 100:
            return workspace
    return None


def log_damages(world: World, tally: Tally, seed: int, few: bool) -> None:
    with scratch(world.root, "log") as place:
        workspace = crashed(world, place)
        if workspace is None:
            tally.notes.append("no write-ahead log could be caught")
            return
        cut: list[str] = []
        sound = seen(world.commands, world.copy(workspace, place, "recovered"), ("history", "status"))
        for number, damage in enumerate(
            (flip, flip_late, zero_block, half, short, longer, noise, zero)[:: 4 if few else 1]
        ):
            with scratch(place, "spoilt") as spoilt:
                copy = world.copy(workspace, spoilt)
                damage(copy / "workspace.duckdb.wal", random.Random(f"{seed} {number}"))
                found = [look(world.commands, copy, view) for view in ("history", "status")]
                problems = [complaint(result) for result in found]
                if found[0].code == 0 and not same(scrub(found[0].json), sound["history"]):
                    problems.append("decision lost: it was not in the write-ahead log that was damaged")
                elif found[1].code == 0 and not same(scrub(found[1].json)["calls"], sound["status"]["calls"]):
                    cut.append(damage.__name__)
                tally.case(f"workspace.duckdb.wal: {damage.__name__}", problems)
        if cut:  # DuckDB reads a log as far as it is whole, as databases do: a process may have died while it wrote
            tally.notes.append(f"write-ahead log read in part, with exit code 0: {', '.join(cut)}")
