"""What the tool promises about keys, money, permissions and interruption, each broken on purpose once."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from .harness import KEY, Result, Tally, complaint, scratch, wait_until, wanted
from .server import StubServer
from .world import LABELS, MARKER, World, asking, look, must, with_key, write_rows

Check = Callable[[World, Path], list[str]]
QUESTION = f"{MARKER} my parcel and the lamp"


def run(world: World, seed: int, short: bool, workers: int) -> list[Tally]:
    tally = Tally("promises")
    for name, check in ((name, check) for name, check in CHECKS.items() if wanted(name)):
        with scratch(world.root, "promise") as folder:
            try:
                problems = check(world, folder)
            except RuntimeError as error:
                problems = [str(error)[-200:]]
            if problems == [NOT_HERE]:
                tally.notes.append(f"not possible here: {name}")
                continue
            tally.case(name, problems)
    return [tally]


NOT_HERE = "not possible here"


def _leaks(server: StubServer) -> list[str]:
    """Whether the key, or a prompt, came to a server that the user never named."""
    calls = [*server.calls, *server.other]
    problems = ["key sent to a server of the workspace's choice"] if any(KEY in str(c.headers) for c in calls) else []
    return problems + (["prompts sent to it unasked"] if server.calls and not problems else [])


def foreign_config(*words: object, config: str = 'llm = "openai:stub"\nbase_url = "{url}"\n') -> Check:
    """A workspace that came from elsewhere names a server in its config.toml."""

    def check(world: World, folder: Path) -> list[str]:
        workspace = world.copy(world.plain, folder)
        with StubServer(LABELS, MARKER) as server:
            (workspace / "config.toml").write_text(config.replace("{url}", server.url))
            found = world.commands.run(*words, "-w", workspace, environment=with_key())
            keys = [call for call in (*server.calls, *server.other) if KEY in str(call.headers)]
            return [complaint(found), "key sent to a server that the workspace names" if keys else ""]

    return check


def foreign_job(world: World, folder: Path) -> list[str]:
    """A job's folder that came with the workspace is not run, or says first what it would run."""
    workspace = world.copy(world.full, folder)
    target = folder / "precious.jsonl"
    target.write_text("precious")
    path = workspace / "jobs" / "1" / "job.json"
    told = json.loads(path.read_text())
    told |= {"arguments": ["export", str(target), "--force"], "directory": str(folder)}
    path.write_text(json.dumps(told))
    found = world.commands.run("jobs", "resume", "1", "-w", workspace)
    wait_until(lambda: target.read_text() != "precious", 10 if found.code == 0 else 0.5)
    changed = target.read_text() != "precious"
    return [complaint(found), "a job from elsewhere overwrote a file of the user's" if changed else ""]


def foreign_job_key(world: World, folder: Path) -> list[str]:
    workspace = world.copy(world.full, folder)
    with StubServer(LABELS, MARKER) as server:
        path = workspace / "jobs" / "1" / "job.json"
        words = [str(word) for word in asking(server, "evaluate", "-m", "zero", "--limit", "2")]
        path.write_text(json.dumps(json.loads(path.read_text()) | {"arguments": words, "directory": str(folder)}))
        found = world.commands.run("jobs", "resume", "1", "-w", workspace, environment=with_key())
        wait_until(lambda: bool(server.calls), 10 if found.code == 0 else 0.5)
        return [complaint(found), *_leaks(server)]


def money(*flags: object, spends: int = 0) -> Check:
    """``preview`` asks within the limits it was given."""

    def check(world: World, folder: Path) -> list[str]:
        with StubServer(LABELS, MARKER) as server:
            words = (*asking(server, "preview", QUESTION, "-m", "bm25"), *flags)
            found = world.commands.run(*words, "-w", world.copy(world.plain, folder), environment=with_key())
            asked = len(server.calls)
            return [complaint(found), f"the LLM was asked {asked} times, {spends} allowed" if asked > spends else ""]

    return check


def error_as_json(*words: object) -> Check:
    def check(world: World, folder: Path) -> list[str]:
        found = world.commands.run(*words, "--json", "-w", world.copy(world.plain, folder))
        if found.code == 0:
            return ["takes what is no such thing, with exit code 0"]
        try:
            told = json.loads(found.err)
        except ValueError:
            return [f"--json, and the error is plain text: {found.line}"]
        return ["" if told.get("exit_code") == found.code else "the exit code in the JSON is another one"]

    return check


def formulas(world: World, folder: Path) -> list[str]:
    rows = [{"input": f"{sign}1+1|cmd", "output": f"{sign}A1", "source": f"{sign}s"} for sign in "=+-@\t\r"]
    pool = write_rows(folder / "pool.jsonl", rows)
    must(world.commands.run("index", pool, "-w", folder / "w", "--no-encode"))
    must(world.commands.run("export", folder / "o.csv", "-w", folder / "w"))
    with (folder / "o.csv").open(newline="") as file:
        cells = [cell for row in list(csv.reader(file))[1:] for cell in row]
    bad = [cell for cell in cells if cell[:1] in set("=+-@\t\r")]
    return [f"cells that a spreadsheet runs: {bad[:3]}"] if bad else []


def permissions(world: World, folder: Path) -> list[str]:
    open_to_all = [
        str(path.relative_to(world.full))
        for path in (world.full, *world.full.rglob("*"))  # the folder itself closes those within it
        if stat.S_IMODE(path.stat().st_mode) & 0o077
        and (path == world.full or path.is_file())
        and path.name not in ("config.toml", "review.json")  # written by this suite
    ]
    return [f"others may read {len(open_to_all)} files: {', '.join(open_to_all[:4])}"] if open_to_all else []


def read_only(*words: object) -> Check:
    """As a user who may read the workspace and not write it."""

    def check(world: World, folder: Path) -> list[str]:
        if os.geteuid() != 0:
            return [NOT_HERE]
        workspace = world.copy(world.plain, folder)
        for path in (folder, workspace, *workspace.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        home = folder / "home"
        home.mkdir(mode=0o777)
        home.chmod(0o777)
        found = world.commands.run(*words, "-w", workspace, environment={"HOME": str(home)}, user=65534, cwd=Path("/"))
        problems = [complaint(found)]
        if found.code and re.search(r"backup|restore the file", found.err):
            problems.append(f"speaks of a copy where permissions are the matter: {found.line}")
        return problems

    return check


def local_model(folder: Path) -> Path | None:
    """A small language model with weights at random, in a folder."""
    program = """
import sys, torch, transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
core = Tokenizer(models.BPE())
core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
special = ["<s>", "</s>"]
core.train_from_iterator(["the ferry and the parcel"], trainers.BpeTrainer(
    vocab_size=300, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
words = transformers.PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
torch.manual_seed(0)
model = transformers.AutoModelForCausalLM.from_config(transformers.GPT2Config(
    vocab_size=len(words), n_embd=256, n_layer=6, n_head=8, n_positions=2048, bos_token_id=0, eos_token_id=1))
model.save_pretrained(sys.argv[1]); words.save_pretrained(sys.argv[1])
"""
    made = subprocess.run(
        [sys.executable, "-c", program, str(folder / "model")], capture_output=True, timeout=180, check=False
    )
    return folder / "model" if made.returncode == 0 else None


def interrupted_model(number: int) -> Check:
    """A local model at work, interrupted once: an end soon, and what was finished is kept."""

    def check(world: World, folder: Path) -> list[str]:
        model = local_model(folder)
        if model is None:
            return [NOT_HERE]
        workspace = world.copy(world.plain, folder)
        words = ("evaluate", "-m", "bm25,random", "--seeds", "3", "--llm", f"hf:{model}", "--answers", "generate",
                 "-w", workspace)  # fmt: skip
        patient = {"ICL_CURATE_MAX_TOKENS": "16"}
        before = _answers(world, workspace)
        started = time.monotonic()
        running = world.commands.start(*words, environment=patient)
        wait_until(lambda: running.ended.is_set() or _answers(world, workspace) > before, 120)
        begun = time.monotonic()
        running.kill(number)
        found = running.wait(60)
        took = time.monotonic() - begun
        problems = [complaint(found), f"no end {took:.0f} s after the interruption" if took > 10 else ""]
        if found.code not in (130, 0):
            problems.append(f"exit code {found.code} of an interrupted command")
        kept = _answers(world, workspace) - before
        if found.code == 130 and not kept:
            problems.append(f"answer lost: nothing is kept of {begun - started:.0f} s of a local model's work")
        return problems

    return check


def _answers(world: World, workspace: Path) -> int:
    calls = look(world.commands, workspace, "status").json.get("calls", {})
    return sum(told.get("calls", 0) for told in calls.values())


def interrupted_server(world: World, folder: Path) -> list[str]:
    """Ctrl-C while a server is asked: the answers that came are kept."""
    with StubServer(LABELS, MARKER, 0.1) as server:
        words = (*asking(server, "evaluate", "-m", "zero,random,bm25"), "-w", world.copy(world.plain, folder))
        running = world.commands.start(*words, environment=with_key())
        wait_until(lambda: len(server.calls) > 10, 30)
        running.kill(signal.SIGINT)
        found = running.wait(30)
        must(world.commands.run(*words, environment=with_key()))
        twice = server.paid_twice()
        return [complaint(found), "" if found.code == 130 else f"exit code {found.code}",
                f"paid twice: {twice}" if twice > 4 else ""]  # fmt: skip


def told_where(world: World, folder: Path) -> list[str]:
    """A paid command says where its prompts go."""
    with StubServer(LABELS, MARKER) as server:
        words = (*asking(server, "evaluate", "-m", "zero", "--limit", "2"), "-w", world.copy(world.plain, folder))
        found = world.commands.run(*words, environment=with_key())
        return ["" if f"127.0.0.1:{server.port}" in found.err else "does not say where the prompts go"]


def far_wait(world: World, folder: Path) -> list[str]:
    """A far Retry-After, with the patience to wait for it, is said."""
    from .server import http

    with StubServer(LABELS, MARKER) as server:
        server.fault = lambda call: http(429, b'{"error": {"message": "slow down"}}', {"retry-after": "3600"})
        words = (*asking(server, "evaluate", "-m", "zero", "--limit", "2"), "-w", world.copy(world.plain, folder))
        running = world.commands.start(*words, environment=with_key(6, 20))
        running.ended.wait(12)
        running.kill(signal.SIGINT)
        found = running.wait(30)
        hints = ("3600", "3,600", "60 min", "1 h", "hour", "1:00")
        return [complaint(found), "" if any(hint in found.said for hint in hints) else "a wait of an hour is not said"]


def served(world: World, folder: Path) -> list[str]:
    """``review --serve``: a page or a socket of another origin is refused, and so is one without the token."""
    probe = subprocess.run([sys.executable, "-c", "import textual_serve, aiohttp"], capture_output=True, check=False)
    if probe.returncode:
        return [NOT_HERE]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running = world.commands.start(
        "review", "--serve", port, "-w", world.copy(world.full, folder), environment=with_key()
    )
    try:
        if not wait_until(lambda: _connects(port) or running.ended.is_set(), 30) or running.ended.is_set():
            return [f"does not serve: {running.wait(1).line}"]
        problems = []
        if _http(port, "/", "evil.example").startswith("HTTP/1.1 200"):
            problems.append("a page for another host is served")
        if _http(port, "/", f"127.0.0.1:{port}").startswith("HTTP/1.1 200"):
            problems.append("a page without a token is served")
        upgrade = ("Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                   "Origin: https://evil.example\r\n")  # fmt: skip
        if _http(port, "/ws?width=80&height=24", f"127.0.0.1:{port}", upgrade, "Upgrade").startswith("HTTP/1.1 101"):
            problems.append("a socket of another origin is accepted")
        return problems
    finally:
        running.kill()
        running.wait(10)


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _http(port: int, path: str, host: str, more: str = "", connection: str = "close") -> str:
    with socket.create_connection(("127.0.0.1", port), 5) as asked:
        asked.settimeout(5)
        asked.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: {connection}\r\n{more}\r\n".encode())
        try:
            return asked.recv(4096).decode("latin-1")
        except OSError:
            return ""


def broken_pipe(world: World, folder: Path) -> list[str]:
    """``demos | head -1``."""
    command = f"{sys.executable} -c 'from icl_curate.cli import main; main()' demos -n 1000 -w {world.full} | head -1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=world.commands.environment, timeout=60, check=False
    )
    return [complaint(Result(("demos",), 0, done.stdout, done.stderr, 0.0))]


def gone_folder(world: World, folder: Path) -> list[str]:
    """The folder one works in is deleted meanwhile."""
    here = folder / "here"
    here.mkdir()
    return [complaint(world.commands.run("status", "-w", world.full, cwd=here, vanish=True))]


CHECKS: dict[str, Check] = {
    "key and a foreign workspace: preview": foreign_config("preview", QUESTION, "--answer", "-m", "bm25"),
    "key and a foreign workspace: preview with --llm": foreign_config(
        "preview", QUESTION, "--answer", "-m", "bm25", "--llm", "openai:gpt-4o"),
    "key and a foreign workspace: evaluate": foreign_config("evaluate", "-m", "zero", "--limit", "2"),
    "key and a foreign workspace: llm check": foreign_config("llm", "check"),
    "key and a foreign workspace: calibrate": foreign_config("calibrate", "query", QUESTION, "-m", "bm25"),
    "key and a foreign workspace: train sources": foreign_config(
        "train", "sources", "--ranking", "bm25", "--limit", "2"),
    "key and a foreign workspace: dry run": foreign_config("evaluate", "-m", "zero", "--dry-run"),
    "key and a foreign workspace: credentials in the URL": foreign_config(
        "llm", "check", config='llm = "openai:stub"\nbase_url = "{url}/../v1?x="\n'),
    "a job from elsewhere overwrites": foreign_job,
    "a job from elsewhere and the key": foreign_job_key,
    "preview --answer --dry-run": money("--answer", "--dry-run"),
    "preview --answer --max-calls 0": money("--answer", "--max-calls", "0"),
    "preview --answer --max-cost 0": money("--answer", "--max-cost", "0"),
    "preview --stability --dry-run": money("--stability", "--dry-run"),
    "preview --stability --max-calls 0": money("--stability", "--max-calls", "0"),
    "preview --stability --max-calls 2": money("--stability", "--max-calls", "2", spends=2),
    "preview --answer --stability --dry-run": money("--answer", "--stability", "--dry-run"),
    "preview --answer --stability --max-calls 1": money("--answer", "--stability", "--max-calls", "1", spends=1),
    "JSON errors: tune --undo": error_as_json("tune", "--undo"),
    "JSON errors: prune": error_as_json("prune"),
    "JSON errors: calibrate": error_as_json("calibrate"),
    "JSON errors: demos": error_as_json("demos", "--split", "x"),
    "JSON errors: jobs follow": error_as_json("jobs", "follow", "99"),
    "JSON errors: evaluate": error_as_json("evaluate", "--split", "pool"),
    "JSON errors: index": error_as_json("index", "nowhere.jsonl", "--map", "x"),
    "JSON errors: export": error_as_json("export", "x.unknown"),
    "JSON errors: train ranker": error_as_json("train", "ranker", "--from", "nowhere"),
    "JSON errors: preview": error_as_json("preview", "x", "-m", "nothing"),
    "formulas in CSV": formulas,
    "files that others may read": permissions,
    "read-only workspace: status": read_only("status"),
    "read-only workspace: prune": read_only("prune", "--source", "forum"),
    "read-only workspace: preview": read_only("preview", "my parcel", "-m", "bm25"),
    "interrupting a local model": interrupted_model(signal.SIGINT),
    "ending a local model": interrupted_model(signal.SIGTERM),
    "interrupting a server": interrupted_server,
    "where prompts go is said": told_where,
    "a far Retry-After is said": far_wait,
    "review --serve and another origin": served,
    "a closed pipe": broken_pipe,
    "a folder that is gone": gone_folder,
}  # fmt: skip
