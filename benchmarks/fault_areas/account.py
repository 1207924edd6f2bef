"""An evaluation on the sample pool, accounted for answer by answer.

Runs ``icl-curate evaluate`` against an OpenAI-compatible server on 127.0.0.1, three times: with a sound server, with
one that misbehaves on a third of its requests, and with that one while the evaluation is killed (SIGKILL) at random
moments and started again. Every good answer carries a serial number in its ``model`` field, which the call cache
keeps, so each stored row names the one reply it came from. Checked at the end, for each run: every query has the
answer to exactly its prompt or a failure that the table counts; no prompt that was stored before a kill was sent again
after it; what was answered and lost fits in the calls in flight. This area alone looks into the call cache.
"""

from __future__ import annotations

import asyncio
import email.utils
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import icl_curate
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.llm.cache import call_key
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import LLMSettings
from icl_curate.engine.pool.records import Split
from icl_curate.engine.store.settings import resolve
from icl_curate.engine.store.workspace import Workspace

from .harness import Tally, scratch
from .world import World

SUPPORT = Path(icl_curate.__file__).parent / "sample_data" / "support"
METHODS = ("zero", "random", "bm25")
SHOTS, SEEDS, LLM = 4, 2, "openai:stub"
SPLIT: Split = "test"
IN_FLIGHT = 16
TIMEOUT = 2.0
"""Seconds the client waits for one answer."""
LONGEST_RUN = 300.0

GOOD = ("good", "slow")
KINDS = {
    "good": 60, "slow": 4,
    "429": 7, "500": 5, "503 page": 3, "dropped": 5, "cut body": 3, "late": 2,
    "200 page": 3, "half JSON": 2, "no choices": 2,
}  # fmt: skip
"""How a request is answered, with weights: a third of them badly. ``slow`` is still within the client's patience,
``late`` is not."""


# the server


@dataclass(slots=True)
class LLMMethod:
    """One request for an answer. ``serial`` is set when a good answer was made, ``sent`` when somebody took it."""

    life: int
    prompt: str
    kind: str
    serial: int = 0
    sent: bool = False
    answered_at: float = 0.0


def digest(messages: Sequence[Sequence[str]]) -> str:
    return hashlib.blake2b(json.dumps(messages).encode(), digest_size=12).hexdigest()


@dataclass
class BadServer:
    """Chat completions over HTTP/1.1 on a free port of 127.0.0.1; a context manager.

    The label answered depends on the prompt alone, how it is answered on the prompt and how often it came before.
    ``life`` is the number of the client process that runs at the time.
    """

    labels: Sequence[str]
    faulty: bool
    seed: int
    life: int = 0
    log: list[LLMMethod] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    serial: int = 0

    def __enter__(self) -> BadServer:
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self.thread.start()
        if not started.wait(10):
            raise RuntimeError("the server did not start")
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def label(self, prompt: str) -> str:
        return self.labels[int(prompt[:8], 16) % len(self.labels)]

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)
        self.listener = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self.listener.sockets[0].getsockname()[1]
        started.set()
        self.loop.run_forever()

    async def _stop(self) -> None:
        self.listener.close()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        life = self.life
        try:
            while await self._one(life, reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _one(self, life: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection is to be dropped."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        if "/chat/completions" not in head[0]:
            writer.write(_http(404, b"{}"))
            return True
        prompt = digest([[m["role"], m["content"]] for m in json.loads(raw)["messages"]])
        draw = random.Random(f"{self.seed} {prompt} {self.seen[prompt]}")
        self.seen[prompt] += 1
        kind = draw.choices(list(KINDS), list(KINDS.values()))[0] if self.faulty else "good"
        asked = LLMMethod(life, prompt, kind)
        self.log.append(asked)
        await asyncio.sleep({"slow": 0.5 * TIMEOUT, "late": TIMEOUT + 0.5}.get(kind, draw.uniform(0.02, 0.2)))
        if kind in GOOD:
            self.serial += 1
            asked.serial = self.serial
            asked.sent = not (reader.at_eof() or writer.is_closing())
            asked.answered_at = time.monotonic()
        reply, keep = self._reply(asked, draw)
        writer.write(reply)
        await writer.drain()
        return keep

    def _reply(self, asked: LLMMethod, draw: random.Random) -> tuple[bytes, bool]:
        """The bytes to send, and whether the connection stays."""
        body = json.dumps(self._completion(asked)).encode()
        page = b"<html><body>Bad gateway</body></html>"
        match asked.kind:
            case "429":
                soon = email.utils.formatdate(time.time() + 1, usegmt=True)
                wish = draw.choice([("retry-after", "1"), ("retry-after-ms", "200"), ("retry-after", soon)])
                return _http(429, b'{"error": {"message": "Rate limit reached"}}', wish), True
            case "500":
                return _http(500, b'{"error": {"message": "internal error"}}'), True
            case "503 page":
                return _http(503, page, ("content-type", "text/html")), True
            case "dropped":
                return b"", False
            case "cut body":
                return _http(200, body)[: -len(body) // 2], False
            case "200 page":
                return _http(200, page, ("content-type", "text/html")), True
            case "half JSON":
                return _http(200, body[: len(body) // 2]), True
            case "no choices":
                return _http(200, b'{"model": "stub", "choices": null}'), True
            case _:
                return _http(200, body), True

    def _completion(self, asked: LLMMethod) -> dict[str, Any]:
        label = self.label(asked.prompt)
        pieces = [label[i : i + 4] for i in range(0, len(label), 4)]
        tokens: list[dict[str, Any]] = [
            {"token": piece, "logprob": -0.1, "bytes": None, "top_logprobs": []} for piece in pieces
        ]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": label},
            "finish_reason": "stop",
            "logprobs": {"content": tokens},
        }
        usage = {"prompt_tokens": 0, "completion_tokens": len(pieces)}
        return {"id": f"chat-{asked.serial}", "model": f"stub-{asked.serial}", "choices": [choice], "usage": usage}


def _http(status: int, body: bytes, *headers: tuple[str, str]) -> bytes:
    fields = {"content-type": "application/json", "content-length": str(len(body)), **dict(headers)}
    lines = [f"HTTP/1.1 {status} Reply", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


# the client


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from icl_curate.cli import main; main()", *map(str, arguments)]


def index(workspace: Path) -> None:
    pool, splits = SUPPORT / "pool" / "*.jsonl", ("validation", "test")
    queries = [part for split in splits for part in (f"--{split}", SUPPORT / f"{split}.jsonl")]
    done = command("index", pool, *queries, "-w", workspace, "--no-encode", "--json")
    subprocess.run(done, check=True, capture_output=True, timeout=120)


def evaluate_command(workspace: Path, url: str, *more: str) -> list[str]:
    return command(
        "evaluate", "-w", workspace, "--llm", LLM, "--base-url", url, "--methods", ",".join(METHODS), "-k", SHOTS,
        "--seeds", SEEDS, "--split", SPLIT, "--json", "-j", IN_FLIGHT, *more,
    )  # fmt: skip


@dataclass
class Kill:
    """One life that ended with SIGKILL: when, and the serial numbers of the answers stored by then."""

    at: float
    stored: set[int]


@dataclass
class Story:
    """What a run left behind. ``stored``: (cache key, serial number, text) of every row of the call cache."""

    server: BadServer
    workspace: Path
    kills: list[Kill]
    table: dict[str, Any]
    stored: list[tuple[bytes, int, str]]
    seconds: float


def stored_answers(workspace: Path) -> list[tuple[bytes, int, str]]:
    with Workspace.open(workspace).read() as con:
        rows = con.execute("SELECT key, model, text FROM llm_calls").fetchall()
    return [(bytes(key), int(model.removeprefix("stub-")), text) for key, model, text in rows]


def live(server: BadServer, workspace: Path, kills: int, draw: random.Random) -> Story:
    """Evaluate to the end, with so many kills on the way."""
    begun = time.monotonic()
    rehearsal = subprocess.run(
        evaluate_command(workspace, server.url, "--dry-run"), check=True, capture_output=True, timeout=60
    )
    total = int(json.loads(rehearsal.stdout)["distinct"])
    told: list[Kill] = []
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        while True:
            server.life += 1
            child = subprocess.Popen(evaluate_command(workspace, server.url), stdout=out, stderr=err)
            try:
                if len(told) == kills:
                    child.wait(LONGEST_RUN)
                    break
                left = total - (len(told[-1].stored) if told else 0)
                wait_to_kill(server, child, left // (kills - len(told) + 2), draw)
                if child.poll() is not None:
                    break
                killed_at = time.monotonic()
            finally:
                child.kill()
                child.wait(30)
            told.append(Kill(killed_at, {serial for _, serial, _ in stored_answers(workspace)}))
        out.seek(0)
        err.seek(0)
        if child.returncode:
            raise SystemExit(f"evaluate ended with {child.returncode}: {err.read().decode()[-2000:]}")
        table = json.loads(out.read())
    return Story(server, workspace, told, table, stored_answers(workspace), time.monotonic() - begun)


def wait_to_kill(server: BadServer, child: subprocess.Popen[bytes], usual: int, draw: random.Random) -> None:
    """Until a random moment: during the start, or a while after a random number of answers."""
    if draw.random() < 0.2:
        deadline = time.monotonic() + draw.uniform(0.0, 2.5)
        goal = sys.maxsize
    else:
        deadline = time.monotonic() + 60
        goal = server.serial + draw.randint(1, max(2 * usual, 1))
    while child.poll() is None and time.monotonic() < deadline and server.serial < goal:
        time.sleep(0.002)
    time.sleep(draw.uniform(0.0, 0.2))


# the account


def plan_of(story: Story) -> list[tuple[bytes, str]]:
    """Cache key and prompt of every query of every method and seed, from the engine's own plan."""
    workspace = Workspace.open(story.workspace)
    settings = resolve(story.workspace, {"llm": LLM, "base_url": story.server.url, "k": SHOTS}).settings
    backend = OpenAIServer("stub", LLMSettings(base_url=story.server.url))
    method_runs = Evaluation.prepare(
        LLMClient(workspace, backend, settings), EvaluationPlan(methods=METHODS, seeds=SEEDS, split=SPLIT)
    ).begin()
    return [
        (call_key(backend.identity(), request), digest([[m.role, m.content] for m in request.prompt.messages]))
        for method_run in method_runs
        for request in (method_run.stage.requests if method_run.stage else ())
    ]


def outcomes(story: Story) -> Counter[str]:
    """Queries of the last run by outcome: ``answer``, or the kind of the failure."""
    with Workspace.open(story.workspace).read() as con:
        rows = con.execute(
            "SELECT CASE WHEN answer IS NOT NULL THEN 'answer' ELSE split_part(failure, ':', 1) END, count(*)"
            " FROM evaluations WHERE run = ? GROUP BY 1",
            [story.table["run"]],
        ).fetchall()
    return Counter({str(outcome): int(count) for outcome, count in rows})


class Account:
    """The story put together: what the server did beside what the workspace and the table say."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.plan = plan_of(story)
        prompts = {prompt for _, prompt in self.plan}
        # what a probe asks is not part of the evaluation
        self.log = [asked for asked in story.server.log if asked.prompt in prompts]
        self.good = [asked for asked in self.log if asked.serial]
        self.prompt_of = {asked.serial: asked.prompt for asked in self.good}
        self.stored = {self.prompt_of[serial] for _, serial, _ in story.stored}
        self.safe = [{self.prompt_of[serial] for serial in kill.stored} for kill in story.kills]
        self.lost = [{a.prompt for a in self.good if a.life == n} - safe for n, safe in enumerate(self.safe, 1)]
        self.given_up = {a.serial for a in self.good if not a.sent and a.answered_at < self._end_of(a.life)}
        self.answers: dict[str, list[LLMMethod]] = defaultdict(list)
        for asked in self.good:
            self.answers[asked.prompt].append(asked)
        self.repeated = sum(len(answers) > 1 for answers in self.answers.values())
        self.spare = len(self.good) - len(self.answers)
        self.outcomes = outcomes(story)
        self.queries = sum(row["calls"] for row in story.table["methods"].values())
        self.failures = sum(row["failures"] for row in story.table["methods"].values())

    def _end_of(self, life: int) -> float:
        return self.story.kills[life - 1].at if life <= len(self.story.kills) else float("inf")

    def sent_again(self) -> int:
        """Requests for a prompt whose answer was stored when an earlier process was killed."""
        return sum(a.prompt in safe for n, safe in enumerate(self.safe, 1) for a in self.log if a.life > n)

    def unexplained(self) -> int:
        """Answers given again although the one before was neither lost at a kill nor too late for the client."""
        return sum(
            before.life == after.life or before.prompt not in self.lost[before.life - 1]
            for answers in self.answers.values()
            for before, after in pairwise(answers)
            if before.serial not in self.given_up
        )

    def misplaced(self) -> int:
        """Stored rows whose key, reply and text do not belong to one prompt."""
        prompts = dict(self.plan)
        return sum(
            prompts.get(key) != self.prompt_of[serial] or text != self.story.server.label(self.prompt_of[serial])
            for key, serial, text in self.story.stored
        )

    def checks(self, kills: int) -> dict[str, bool]:
        keys = {key for key, _, _ in self.story.stored}
        last = {a.prompt for a in self.good if a.life == self.story.server.life and a.sent}
        return {
            f"killed {kills} times, then finished": len(self.story.kills) == kills,
            "every query has an answer or a failure": self.outcomes.total() == self.queries == len(self.plan),
            "the table counts the failures": self.failures == self.queries - self.outcomes["answer"],
            "failures are the queries without a stored answer": self.failures
            == sum(k not in keys for k, _ in self.plan),
            "every stored row is the answer to its own prompt": not self.misplaced(),
            "no prompt stored before a kill was sent again": not self.sent_again(),
            f"at most {IN_FLIGHT} answers were lost at a kill": all(len(lost) <= IN_FLIGHT for lost in self.lost),
            "whatever was answered twice was in flight at a kill": not self.unexplained(),
            f"answers to spare are at most {kills} x {IN_FLIGHT}": self.spare <= kills * IN_FLIGHT + len(self.given_up),
            "the last process stored every answer it got": last <= self.stored,
        }

    def show(self, name: str) -> None:
        kinds = Counter(asked.kind for asked in self.log)
        bad = {kind: kinds[kind] for kind in KINDS if kind not in GOOD and kinds[kind]}
        failed = {kind: count for kind, count in self.outcomes.items() if kind != "answer"}
        print(f"\n{name}: {self.story.seconds:.1f} s")
        print(f"  queries {self.queries:,}, distinct prompts {len(dict(self.plan)):,}")
        print(f"  requests {len(self.log):,}, answered badly {sum(bad.values()):,}  {listed(bad)}")
        print(f"  good answers {len(self.good):,}, stored {len(self.stored):,}")
        print(f"  failures in the table {self.failures:,}  {listed(failed)}")
        print(f"  prompts answered more than once {self.repeated:,}, answers to spare {self.spare:,}")
        print(f"  good answers that came after the client's timeout {len(self.given_up):,}")
        if self.story.kills:
            print("  kill     " + "".join(f"{n:5d}" for n in range(1, len(self.lost) + 1)))
            print("  stored   " + "".join(f"{len(safe):5d}" for safe in self.safe))
            print("  lost     " + "".join(f"{len(lost):5d}" for lost in self.lost))


def listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def run(world: World, seed: int, short: bool, workers: int) -> list[Tally]:
    tally = Tally("account")
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ICL_CURATE_"))]:
        del os.environ[name]
    os.environ["ICL_CURATE_TIMEOUT"] = str(TIMEOUT)
    os.environ["ICL_CURATE_CONCURRENCY"] = str(IN_FLIGHT)
    lines = (SUPPORT / "test.jsonl").read_text(encoding="utf-8").splitlines()
    labels = sorted({str(json.loads(line)["output"]) for line in lines})
    many = 3 if short else 20
    runs = [("a sound server", False, 0), ("a bad server", True, 0), (f"a bad server and {many} kills", True, many)]
    for name, faulty, kills in runs[2 if short else 0 :]:
        with scratch(world.root, "account") as folder, BadServer(labels, faulty, seed) as server:
            workspace = folder / "w"
            os.environ["ICL_CURATE_CONFIG"] = str(folder / "none.toml")
            index(workspace)
            story = live(server, workspace, kills, random.Random(seed))
            account = Account(story)
            account.show(name)
            for what, holds in account.checks(kills).items():
                tally.case(f"{name}: {what}", [] if holds else ["does not hold"])
    return [tally]
