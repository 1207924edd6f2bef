"""Records, names and arguments that hold what a terminal obeys, through every command on a pty.

Judged: the control bytes that reach the terminal and are not rich's own. On a plain terminal (``TERM=dumb``) there are
none of its own but line ends; on a colourful one its colours and cursor movements are taken out first.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .harness import Commands, Result, Tally, complaint, raw_bytes, scratch, wait_until
from .world import World, job_states

PAYLOADS = (
    "\x1b]52;c;aGk=\x07", "\x1b[2J\x1b[H", "\x1b]0;title\x07", "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\",
    "\x1bP$q\"p\x1b\\", "\x1b[6n", "\x1b[?1049h", "\x1b[5;31;46m", "\x9b2J", "\x9d0;t\x9c", "\x90q\x9c", "\x85", "\x84",
    "\x07\x08\x08\x08", "\r\x1b[Kover", "a\rb", "\x0b\x0c", "\x7f\x7f", "\x00", "\x0e\x0f", "\x05",
    "\u202egnp.exe\u202c",
    "\u2066x\u2069", "\u202b\u202a\u202d", "\u200f\u200e", "\u2028\u2029", "\x1b", "\x1b\x1b[", "\x1b(0lqk", "\x1bc",
    "\u0600\u06dd", "\ufeff", "[bold]x[/]", "[/no]", "\x1b_G\x1b\\", "\x1b^x\x1b\\", "\x1b[8;1;1t", "\x1b]4;1;?\x07",
)  # fmt: skip
FIELDS = ("input", "output", "source", "id", "context", "options", "note", "answers", "name of a field", "messages")
RECORDS = 500


def records(draw: random.Random) -> list[dict[str, Any]]:
    """Every payload in every field at least once."""
    made: list[dict[str, Any]] = []
    for i in range(RECORDS):
        payload, field = PAYLOADS[i % len(PAYLOADS)], FIELDS[(i // len(PAYLOADS)) % len(FIELDS)]
        row: dict[str, Any] = {
            "id": f"r{i}",
            "input": f"what is thing {i} of {draw.randrange(99)}",
            "output": f"o{i % 4}",
        }
        row["source"] = f"s{i % 5}"
        if field == "options":
            row["options"] = [row["output"], f"other {payload}"]
        elif field == "answers":
            row["answers"] = [f"also {payload}"]
        elif field == "name of a field":
            row[f"f{payload}"] = payload
        elif field == "messages":
            row = {"messages": [{"role": "user", "content": f"{payload} hello {i}"},
                                {"role": "assistant", "content": f"o{i % 4}{payload}"}]}  # fmt: skip
        else:
            row[field] = f"{row.get(field, '')}{payload}{i % 5 if field == 'source' else i}"
        made.append(row)
    return made


def asked(draw: random.Random) -> list[dict[str, Any]]:
    return [
        {"id": f"q{i}", "input": f"what is thing {i} {PAYLOADS[i % len(PAYLOADS)]}", "output": f"o{i % 4}",
         "context": f"one {PAYLOADS[-i]}\n\ntwo {PAYLOADS[i % 7]}"} for i in range(24)
    ]  # fmt: skip


def run(world: World, seed: int, short: bool, workers: int) -> list[Tally]:
    tally = Tally("terminal")
    with scratch(world.root, "terminal") as folder:
        draw = random.Random(seed)
        pool, validation = folder / "pool.jsonl", folder / "validation.jsonl"
        pool.write_text("".join(json.dumps(row) + "\n" for row in records(draw)) + "broken \x1b[2J\n")
        validation.write_text("".join(json.dumps(row) + "\n" for row in asked(draw)))
        workspace = folder / "w"
        commands = world.commands
        for words in preparing(pool, validation):  # one after the other: each is also a case
            on_both(commands, tally, (*words, "-w", workspace))
        names = hostile_names(commands, workspace)
        planned = [(*words, "-w", workspace) for words in listing(*names)]
        planned += [tuple(words) for words in refused(folder, workspace)]
        if short:
            planned = planned[::3]
        with ThreadPoolExecutor(workers) as several:
            for words, problems in several.map(lambda words: (words, both(commands, words)), planned):
                tally.case(shown(words), problems)
        for words in ((*change, "-w", workspace) for change in changing(*names)):
            on_both(commands, tally, words)
        wait_until(lambda: not {"queued", "running"} & set(job_states(commands, workspace)), 60)
        for words in (("jobs",), ("jobs", "--json"), ("jobs", "follow"), ("jobs", "follow", "--json"), ("status",)):
            on_both(commands, tally, (*words, "-w", workspace))
        tally.case("review", review(commands, workspace), "review, through its tabs with 2 to 8")
    tally.notes.append(f"{RECORDS} records of {len(PAYLOADS)} payloads in {len(FIELDS)} fields, {tally.tried} commands")
    return [tally]


def preparing(pool: Path, validation: Path) -> list[tuple[object, ...]]:
    """The commands that read and learn; the first shows bad rows."""
    return [
        ("index", pool, "--validation", validation, "--dry-run"),
        ("index", pool, "--validation", validation),
        ("train", "sources", "-b", "6"),
        ("train", "ranker", "--epochs", "1"),
        ("train", "topics", "--epochs", "2", "--sample", "100", "--questions", "50"),
        ("evaluate", "-m", "random,dense", "--split", "validation", "--seeds", "1"),
        ("calibrate", "--split", "validation", "--limit", "2", "-r", "1"),
    ]


def hostile_names(commands: Commands, workspace: Path) -> tuple[str, str, str]:
    """A source and two ids of the workspace that hold control characters."""
    found = commands.run("demos", "-n", "1000", "-w", workspace, "--json").json.get("demonstrations", [])
    sources = sorted({row["source"] for row in found if raw_bytes(row["source"]) and "\0" not in row["source"]})
    ids = sorted({row["id"] for row in found if raw_bytes(row["id"]) and "\0" not in row["id"]})
    return (sources or ["s\x1b[2J"])[0], (ids or ["r\x1b[2J"])[0], (ids or ["r\x1b[2J"])[-1]


def listing(source: str, one: str, two: str) -> list[tuple[object, ...]]:
    """What only shows, as a table and as JSON."""
    tables: list[tuple[object, ...]] = [
        ("status",), ("sources",), ("demos", "-n", "600"), ("demos", "--duplicates"), ("demos", "-s", "\x1b"),
        ("demos", "--source", source), ("flips", "--misleading"), ("flips", "--helpful"), ("flips", "show", one),
        ("demos", "--split", "validation"), ("history",), ("topics",), ("topics", "--gaps"), ("topics", "-s", "\x9b"),
        ("preview", "what is thing \x1b[2J 5", "-m", "dense", "--explain"), ("preview", "thing\x9b", "-m", "bm25"),
        ("preview", "what \u202e is", "-m", "ranker", "--explain"), ("preview", "thing 7", "-m", "topick", "--explain"),
        ("preview", "thing 8", "-m", "set-bsr", "--explain"), ("preview", "thing 8", "-m", "dpp", "--explain"),
        ("preview", "thing \x1b", "--answer"), ("preview", "thing 3", "--stability"),
        ("preview", "thing", "--option", "\x1b[2J", "--option", "b", "--context", "\x9b", "--answer"),
        ("calibrate", "query", "q3"), ("calibrate", "query", "what \x1b[2J is it"), ("config",), ("jobs",),
        ("llm", "check"),
        ("evaluate", "-m", "zero,bm25", "--split", "validation", "--seeds", "1", "--limit", "3"),
        ("prune", "--source", source, "--dry-run"), ("prune", "--demo", one, "--dry-run"),
        ("tune", "--dry-run"),
        ("train", "sources", "-b", "6", "--dry-run"),
    ]  # fmt: skip
    return tables + [(*words, "--json") for words in tables]


def changing(source: str, one: str, two: str) -> list[tuple[object, ...]]:
    return [
        ("prune", "--source", source, "--reason", "because \x1b[2J \x9b"),
        ("prune", "--demo", one, "--demo", two, "--reason", "\u202e", "--json"),
        ("history",), ("history", "--json"), ("sources",),
        ("undo",), ("undo", "--json"),
        ("restore", "--source", source),
        ("evaluate", "-m", "zero", "--split", "validation", "--background"),
    ]  # fmt: skip


def refused(folder: Path, workspace: Path) -> list[Sequence[object]]:
    """Errors that name what was given."""
    bad = "no\x1b]52;c;aGk=\x07\x9b2J\u202e"
    log = folder / "log.jsonl"
    row = {"question": bad, "correct_answers": [bad], "retrieved_answers": [bad, "x"], "retrieved_sources": [bad, "y"]}
    log.write_text((json.dumps(row) + "\n") * 12)
    (folder / f"config{bad}.toml").write_text("")
    odd = folder / f"w{bad}"
    words: list[Sequence[object]] = [
        ("status", "-w", odd), ("status", "-w", odd, "--json"), ("demos", "--source", bad, "-w", workspace),
        ("demos", "--split", bad, "-w", workspace), ("flips", "show", bad, "-w", workspace),
        ("prune", "--source", bad, "-w", workspace), ("prune", "--demo", bad, "-w", workspace),
        ("prune", "--demo", bad, "-w", workspace, "--json"), ("restore", "--source", bad, "-w", workspace),
        ("preview", "x", "-m", bad, "-w", workspace), ("preview", "x", "--llm", bad, "--answer", "-w", workspace),
        ("preview", "x", "--order", bad, "-w", workspace),
        ("preview", "x", "--device", bad, "--answer", "-w", workspace),
        ("evaluate", "-m", bad, "-w", workspace), ("evaluate", "--split", bad, "-w", workspace),
        ("evaluate", "--llm", f"openai:{bad}", "--base-url", f"http://127.0.0.1:1/{bad}", "-w", workspace),
        ("evaluate", "--base-url", bad, "--llm", "openai:x", "-w", workspace),
        ("calibrate", "query", bad, "--arms", bad, "-w", workspace),
        ("calibrate", "query", bad, "--uncertainty", bad, "-w", workspace),
        ("export", folder / bad, "-w", workspace), ("export", folder / f"{bad}.jsonl", "-f", bad, "-w", workspace),
        ("export", folder / f"{bad}.jsonl", "-w", workspace), ("export", folder / f"{bad}.jsonl", "-w", workspace),
        ("export", folder / f"no{bad}" / "x.csv", "--source", bad, "-w", workspace),
        ("index", folder / f"{bad}.csv", "-w", workspace), ("index", folder / f"*{bad}", "-w", workspace),
        ("index", folder / "pool.jsonl", "--map", bad, "-w", workspace), ("index", "--encoder", bad, "-w", workspace),
        ("train", "topics", "--topics", bad, "-w", workspace), ("train", "ranker", "--from", bad, "-w", workspace),
        ("train", "sources", "--ranking", bad, "-w", workspace), ("jobs", "follow", bad, "-w", workspace),
        ("llm", "check", "--llm", bad, "-w", workspace), ("audit", log), ("audit", log, "--json"),
        ("audit", folder / bad), (bad,), ("jobs", bad), ("demos", f"--{bad}"), ("config", "-w", odd),
        ("demo", "-w", folder / "pool.jsonl" / bad),
    ]  # fmt: skip
    return words


def shown(words: Sequence[object]) -> str:
    told = " ".join(ascii(str(word)) if raw_bytes(str(word)) else str(word) for word in words)
    return told.split(" -w /")[0][:120]


def both(commands: Commands, words: Sequence[object]) -> list[str]:
    """The same command on a plain terminal and on a colourful one."""
    problems: list[str] = []
    for terminal in ("dumb", "xterm-256color"):
        environment = {"TERM": terminal} | ({} if terminal == "dumb" else {"NO_COLOR": "", "FORCE_COLOR": "1"})
        found = commands.run_on_terminal(*words, environment=environment, limit=90)
        problems += judged(found)
        if problems:
            break
    return problems


def judged(found: Result) -> list[str]:
    raw = raw_bytes(found.out)
    problems = [f"raw control bytes: {len(raw)} of {sorted(set(raw))[:8]}"] if raw else []
    found.err = "" if found.code == 0 else "".join(line for line in found.out.splitlines(keepends=True))
    if raw:  # the rest is judged without them
        found.out = found.err = ""
        return problems
    return [complaint(found)]


def on_both(commands: Commands, tally: Tally, words: Sequence[object]) -> None:
    tally.case(shown(words), both(commands, words))


def review(commands: Commands, workspace: Path) -> list[str]:
    """The screen draws with sequences of its own, so here only the payloads are looked for."""
    keys = {"TERM": "xterm-256color", "NO_COLOR": ""}
    found = commands.run_on_terminal(
        "review", "-w", workspace, environment=keys, typed=b"2345678q", typed_after=3.0, limit=60
    )
    shown = [
        p for p in PAYLOADS if len(p) > 3 and p.startswith(("\x1b]52", "\x1b]0;t", "\x1b[6n", "\x1b[5;31;46m", "\x1bP"))
    ]
    raw = [p for p in shown if p in found.out] + [c for c in found.out if c in "\x9b\x9d\x90\u202e\u2066"]
    found.err = ""
    return [f"raw control bytes: {raw[:5]}" if raw else "", complaint(found)]
