"""What reaches a terminal: nothing that acts on it, whatever a pool, a server, a file or a command line holds."""

from __future__ import annotations

import ast
import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import icl_curate
import pytest
from factories.commands import Run
from factories.hostile import HOSTILE, NAMES, OWNED, got_through, queries, rows, write
from factories.patience import PATIENCE
from factories.reviewing import go, notified, session, settled, text_of
from factories.servers import Reply, Server, error, ok
from factories.terminals import Shown, Terminals
from icl_curate.engine.pool.display import display_json, display_line, display_text, encodable_json
from icl_curate.render import SHOWN

ROOT = Path(icl_curate.__file__).parent
CLIP, BYTE = HOSTILE["clipboard"], HOSTILE["eight-bit"]
CODE = "from icl_curate.cli import main; main()"


# One function.


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_shown_is_visible_and_what_is_kept_is_the_same(name: str) -> None:
    text = HOSTILE[name]
    assert not got_through(display_text(text).encode()), name
    assert not got_through(display_line(text).encode()) and "\n" not in display_line(text)
    told = json.dumps({text: [text]}, ensure_ascii=False)
    assert json.loads(display_json(told)) == json.loads(encodable_json(told)) == {text: [text]}
    assert not got_through(display_json(told).encode())
    encodable_json(told).encode()


def test_what_hides_is_shown_and_what_scripts_need_stays() -> None:
    assert display_line("a\u200bb\ufeffc") == "a<U+200B>b<U+FEFF>c"
    assert display_line("soft\u00adhyphen \u3164") == "soft<U+00AD>hyphen <U+3164>", "nor are these drawn"
    assert display_line("\U000e0041\udc9b") == "<U+E0041><U+DC9B>"
    for text in ("👩‍👩‍👧", "می‌خواهم", "e\u0301", "café — “so” …", "\U0001f600"):
        assert display_text(text) == text


# One door.

DOOR = {"render/terminal.py", "render/console.py"}
WRITES = re.compile(
    r"print|input|pprint|s?echo|(\w+\.)*Console|rich\.print|traceback\.print_\w+"
    r"|(typer|click)\.(s?echo|getchar|launch|pause|progressbar)|os\.write"
)
BELOW = ("write", "writelines", "buffer", "detach", "reconfigure")
STREAMS = re.compile(rf"sys\.(__stdout__|__stderr__|std(out|err)\.({'|'.join(BELOW)}))")
OWN = dict.fromkeys(("engine/jobs/child.py", "engine/llm/claims.py", "engine/store/locks.py"), "os.write")  # own files


def _writes(path: Path) -> Iterator[str]:
    """Whatever writes to stdout or stderr by its own way."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            said, ways = ast.unparse(node.func), WRITES
        elif isinstance(node, ast.Attribute) and node.attr in ("__stdout__", "__stderr__", *BELOW):
            said, ways = ast.unparse(node), STREAMS
        else:
            continue
        if ways.fullmatch(said):
            yield f"{path.name}:{node.lineno} {said}"


def test_nothing_writes_to_the_terminal_but_through_the_door() -> None:
    folders = ("engine", "render", "serving", "tui", "commands")
    files = [ROOT / "cli.py", *(path for folder in folders for path in (ROOT / folder).rglob("*.py"))]
    names = {path: path.relative_to(ROOT).as_posix() for path in files}
    found = [(name, line) for path, name in names.items() if name not in DOOR for line in _writes(path)]
    assert [line for name, line in found if line.split()[1] != OWN.get(name)] == []


def test_the_rule_sees_every_way_of_writing(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    ways = ["print(1)", "typer.echo(x)", "sys.stdout.write(x)", "Console().log(x)", "sys.__stderr__.write(x)"]
    path.write_text("\n".join(ways))
    assert len({line.split()[0] for line in _writes(path)}) == len(ways)


# Every command, on a terminal.


@pytest.fixture(scope="module")
def terminals() -> Iterator[Terminals]:
    pytest.importorskip("pty")
    with Terminals() as opened:
        yield opened


@pytest.fixture(scope="module")
def pool(terminals: Terminals, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a hostile pool under a hostile name, indexed into ``.icl-curate``."""
    folder = tmp_path_factory.mktemp("hostile")
    write(folder / f"{_name(CLIP)}.jsonl", rows())
    (folder / "bad.jsonl").write_text('{"input": "fine", "output": "x"}\n{"input": "x\x1b]0;y\x07"\n{"id": 1}\n')
    write(folder / "validation.jsonl", queries())
    write(folder / "test.jsonl", queries("t"))
    asked = ["--validation", "validation.jsonl", "--test", "test.jsonl"]
    shown = terminals("index", "copy*.jsonl", "bad.jsonl", *asked, "--no-encode", directory=folder)
    assert shown.code == 0, shown.seen[-2000:]
    assert not got_through(shown.seen)
    assert b"skipped in" in shown.seen
    return folder


@pytest.fixture
def own(pool: Path, tmp_path: Path) -> Path:
    """The same for a test that changes it."""
    return Path(shutil.copytree(pool, tmp_path / "own"))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Answers every prompt with a hostile text."""
    texts = [text for name, text in HOSTILE.items() if name not in ("half", "long")]

    def fault(server: Server, call: Any, seen: int) -> Reply:
        reply = server.chat_reply(call)
        reply["choices"][0]["message"]["content"] = texts[len(server.calls) % len(texts)]
        reply["choices"][0]["logprobs"] = None
        return ok(reply)

    with Server(fault=fault) as started:
        yield started


def _name(text: str) -> str:
    return text.replace("/", "_").replace("\x00", "")


def _clean(shown: Shown, code: int = 0) -> None:
    assert shown.code == code, shown.seen.decode("utf-8", "replace")[-3000:]
    assert got_through(shown.seen) == []
    assert b"Traceback" not in shown.seen


READING = [
    ["status"], ["sources"], ["demos", "-n", 60], ["demos", "--json", "-n", 60], ["sources", "--json"],
    ["demos", "--source", f"source {CLIP}"], ["demos", "--search", CLIP], ["preview", CLIP, "-m", "bm25", "--explain"],
    ["preview", "question about title", "-m", "bm25", "--json"], ["config"], ["config", "--json"], ["history"],
    ["index", "--dry-run", "--json"],
]  # fmt: skip


def test_commands_that_read(terminals: Terminals, pool: Path) -> None:
    for arguments in READING:
        shown = terminals(*arguments, directory=pool)
        _clean(shown)
        if "--json" in arguments:
            assert json.loads(shown.seen[shown.seen.index(b'{"') :])["schema_version"] == 1
    kept = json.loads(terminals("demos", "--json", "-n", 60, directory=pool).seen)["demonstrations"]
    assert any("\x1b]52;c;" in row["input"] for row in kept) and any("\x9b" in row["id"] for row in kept)


def test_commands_that_decide_and_write(terminals: Terminals, own: Path) -> None:
    first = f"0 {HOSTILE[NAMES[0]]}"
    for arguments in (
        ["prune", "--source", f"source {BYTE}", "--reason", CLIP], ["prune", "--demo", first, "--reason", BYTE],
        ["history"], ["history", "--json"], ["sources"], ["restore", "--demo", first], ["undo"],
        ["export", f"{_name(BYTE)}.jsonl"], ["export", f"{_name(CLIP)}.out.jsonl", "--json"],
    ):  # fmt: skip
        _clean(terminals(*arguments, directory=own))


def test_commands_that_ask(terminals: Terminals, own: Path, server: Server) -> None:
    llm = ["--llm", "openai:stub", "--base-url", server.url, "--answers", "generate"]
    for arguments in (
        ["llm", "check", *llm[:4]],
        ["evaluate", "-m", "zero,bm25", "-k", 1, "--seeds", 1, *llm],
        ["evaluate", "-m", "zero", "-k", 1, "--seeds", 1, "--json", *llm],
        ["calibrate", "query", "--context", f"{CLIP}\n\n{BYTE}", "--uncertainty", "self-consistency", "-r", 1, CLIP,
         *llm],
        ["calibrate", "--split", "validation", "--over", "demonstrations", "-m", "bm25", "-k", 2, "-r", 1,
         "--uncertainty", "self-consistency", *llm],
        ["status"],
    ):  # fmt: skip
        _clean(terminals(*arguments, directory=own, environment={"OPENAI_API_KEY": "sk-none"}))


def test_an_error_of_a_server(terminals: Terminals, own: Path) -> None:
    with Server(fault=lambda server, call, seen: error(400, f"{CLIP} {BYTE}\r\nfix: rm -rf /")) as failing:
        llm = ["--llm", "openai:stub", "--base-url", failing.url]
        environment = {"OPENAI_API_KEY": "sk-none"}
        shown = terminals("llm", "check", *llm, directory=own, environment=environment)
        _clean(shown, 3)
        assert b"error: " in shown.seen and shown.seen.count(b"\nfix: ") <= 1
        shown = terminals("evaluate", "-m", "zero", "--seeds", 1, *llm, directory=own, environment=environment)
        assert got_through(shown.seen) == [] and b"Traceback" not in shown.seen


WRONG: list[tuple[list[object], int]] = [
    (["prune", "--source", CLIP], 2), (["prune", "--demo", BYTE], 2), (["restore", "--demo", HOSTILE["tags"]], 2),
    (["flips", "show", HOSTILE["forged"]], 2),
    (["preview", "q", "-m", CLIP], 2), (["index", f"{BYTE}.jsonl"], 2), (["index", "x.jsonl", "--map", CLIP], 2),
    (["index", "bad.jsonl", "--map", f"input={BYTE}", "--strict"], 2),
    (["export", f"{_name(CLIP)}.nonsense"], 2), (["export", "x", "-f", BYTE], 2), (["audit", BYTE], 2),
    (["jobs", "follow", CLIP], 2), (["jobs", "follow", "7"], 2), (["status", "-w", _name(CLIP)], 5),
    (["llm", "check", "--llm", CLIP], 2), (["calibrate", CLIP, "--split", BYTE], 2),
    (["--" + CLIP], 2), (["demos", "--" + CLIP], 2), ([BYTE], 2), (["demos", "-n", CLIP], 2),
    (["train", CLIP], 2), (["train", "ranker", "-m", BYTE], 2), (["demos", f"--source={CLIP}", CLIP], 2),
]  # fmt: skip


def test_errors_say_names_as_they_can_be_shown(terminals: Terminals, pool: Path) -> None:
    for arguments, code in WRONG:
        shown = terminals(*arguments, directory=pool)
        told = shown.seen.decode("utf-8", "replace")
        _clean(shown, code)
        lines = told.splitlines()
        assert [line.split(":")[0] for line in lines if re.match(r"error: |fix: ", line)] == ["error", "fix"], told


def test_config_and_damaged_files_with_names_that_act(terminals: Terminals, own: Path) -> None:
    config = own / ".icl-curate" / "config.toml"
    config.write_text(f'"x{BYTE}y\u202e" = 1\nmethod = "\\u001b]52;c;{OWNED}\\u0007"\n', encoding="utf-8")
    _clean(terminals("config", directory=own), 2)
    config.write_text("\x9b = [\n", encoding="utf-8")
    _clean(terminals("preview", "q", directory=own), 2)
    config.write_text(f'instruction = "\\u001b]52;c;{OWNED}\\u0007 \\u202e"\n', encoding="utf-8")
    _clean(terminals("config", directory=own))
    config.unlink()
    for suffix in ("parquet", "csv", "json", "jsonl"):
        damaged = own / f"{_name(BYTE)} \x1b]0;x\x07.{suffix}"
        damaged.write_bytes(b"PAR1\x1b]52;c;eA==\x07\x9b\xc2\x9b{")
        shown = terminals("index", damaged.name, directory=own)
        assert got_through(shown.seen) == [] and b"Traceback" not in shown.seen, suffix
    (own / os.fsdecode(b"\x9b2J\xff.jsonl")).write_text('{"input": 1')  # no UTF-8: a C locale would write the bytes
    for environment in ({}, {"LC_ALL": "C"}):
        assert got_through(terminals("index", "?2J*.jsonl", directory=own, environment=environment).seen) == []
    workspace = own / _name(CLIP)
    workspace.mkdir()
    (workspace / "workspace.duckdb").write_bytes(b"\x1b]0;x\x07" * 4000)
    _clean(terminals("status", "-w", workspace, directory=own), 5)


def test_jobs_tell_what_their_folders_hold(terminals: Terminals, own: Path) -> None:
    folder = own / ".icl-curate" / "jobs" / "1"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(
        json.dumps({"arguments": ["evaluate", "-m", CLIP], "directory": CLIP, "created": 1.0})
    )
    (folder / "state.json").write_text(json.dumps({"pid": 4242, "started": 1.0, "ended": 2.0, "code": 1}))
    events = [
        {"time": 1.0 + i, "task": text, "done": i, "total": 99, "note": text, "fields": {text: 1.0}}
        for i, text in enumerate(HOSTILE.values())
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "log.txt").write_text(f"warning: {BYTE}\n" + json.dumps({"error": CLIP, "fix": BYTE}) + "\n")
    for arguments, code in ((["jobs"], 0), (["jobs", "--json"], 0), (["jobs", "follow"], 1), (["jobs", "cancel"], 2)):
        _clean(terminals(*arguments, directory=own), code)


def test_the_review_of_it(terminals: Terminals, own: Path) -> None:
    """Textual's own sequences are many; those of the pool are none of them, and what ``y`` copies is base64."""
    (own / ".icl-curate" / "review.json").write_text(
        json.dumps({"tab": "preview", "theme": "", "tabs": {"preview": {"typed": CLIP, "methods": ["bm25", "bm25"]}}})
    )
    shown = terminals(
        "review", directory=own, width=120, seconds=PATIENCE,
        steps=[("␛]52", "3"), (" size", "jy"), ("\x1b]52;c;", "6"), ("question", "q")],
    )  # fmt: skip
    assert (shown.code, shown.left) == (0, []), shown.seen[-2000:]
    copied = re.findall(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07", shown.seen)
    assert OWNED.encode() not in copied
    assert base64.b64decode(copied[0]).decode().startswith(("source ", "bad"))  # the second source, or still the first
    ours = re.compile(
        r"\x1b\[(?!3;31;47m|0;1;7m|99A|3;7H|2J|>c)[0-9;:?<>=$]*[A-Za-z]|\x1b\]52;c;[A-Za-z0-9+/=]*\x07"
        r"|\x1b\]22;[a-z]*\x07|\x1bP[=+>$].*?\x1b\\|\x1b_G.*?\x1b\\|\x1b[=>78]"
    )
    assert got_through(shown.seen, ours) == []


# The screen.


def test_notifications_fields_and_what_is_not_there_are_safe(taught: Path, tmp_path: Path) -> None:
    hostile = CLIP + BYTE + HOSTILE["turned"] + HOSTILE["hidden"] + "[/foo]"

    async def script(app: Any, pilot: Any) -> None:
        app.notify(hostile, title=hostile)
        app.tab.notify(hostile, severity="error")
        app.query_one("#trouble").update("")
        assert not got_through(notified(app).replace("\n", " ").encode())
        await settled(pilot)
        assert not got_through(text_of(app).encode())
        room = await go(app, pilot, "demos")
        room.query_one("#search").value = hostile
        await settled(pilot)
        assert "␛]52" in text_of(app)
        assert not got_through(text_of(app).encode())

    session(taught, script)

    async def missing(app: Any, pilot: Any) -> None:
        assert "icl-curate finds the demonstrations" in text_of(app), "the first screen of a folder with such a name"
        assert not got_through(text_of(app).encode())

    session(tmp_path / _name(CLIP + BYTE), missing)


def test_what_cannot_be_encoded_is_copied_all_the_same(taught: Path) -> None:
    async def script(app: Any, pilot: Any) -> None:
        app.tab.to_copy = lambda: "half \ud800"
        app.action_copy()
        assert app.clipboard == "half \\ud800"

    session(taught, script)


# Streams.


@pytest.mark.parametrize(
    "arguments",
    [
        ["tune", "undo"], ["calibrate"], ["calibrate", "query"], ["train"],
        ["train", "nosuch"], ["nosuch"], ["demos", "--nosuch"], ["preview"], ["preview", "q", "-k", "x"],
        ["evaluate", "--split", "x"],
        ["train", "ranker", "-m", "x"], ["index", "x", "--map", "y"], ["jobs", "follow"], ["status"],
    ],
)  # fmt: skip
def test_with_json_every_error_is_the_promised_object(
    terminals: Terminals, tmp_path: Path, arguments: list[str]
) -> None:
    shown = terminals(*arguments, "--json", directory=tmp_path)
    told = json.loads(shown.seen)
    assert set(told) == {"schema_version", "error", "fix", "exit_code"}
    assert told["exit_code"] == shown.code and shown.code in (2, 5)
    assert told["fix"]


def test_usage_errors_are_told_as_all_others(run: Run) -> None:
    done = run("train", "ranker", "--zzz")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == ["error: No such option: --zzz", "fix: icl-curate train ranker --help"]
    done = run("preview", "--", "--json")  # the query, not the option
    assert done.err.startswith("error: ")


def test_a_fault_of_ours_is_a_line_and_its_traceback_is_for_who_asks(
    terminals: Terminals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "sitecustomize.py"
    package.write_text(
        "import icl_curate.engine.store.settings as s\n"
        f"def broken(*a, **k): raise ZeroDivisionError({CLIP!r})\n"
        "s.resolve = broken\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}

    def ran(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CODE, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment | more, check=False)

    done = ran("config")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and lines[0].startswith("error: unexpected: ZeroDivisionError: copy ␛]52")
    assert json.loads(ran("config", "--json").stderr)["error"] == f"unexpected: ZeroDivisionError: {CLIP}"
    done = ran("config", ICL_CURATE_TRACEBACK="1")
    assert "Traceback" in done.stderr and "in broken" in done.stderr
    assert not got_through(done.stderr.encode())


def test_lines_and_signs_have_ascii_look_alikes_where_they_cannot_be_written() -> None:
    program = "from icl_curate.render.terminal import guard, say; guard(); say('━━╸ 0–1 … é')"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)
    assert done.stdout == b"--- 0-1 . \\xe9\n"


def test_warnings_and_logs_of_libraries_are_made_visible(tmp_path: Path) -> None:
    program = (
        "import logging, sys, warnings\n"
        "from icl_curate.render.terminal import guard\nguard()\n"
        f"text = {BYTE + CLIP!r}\n"
        "warnings.warn(text)\nlogging.getLogger('x').warning(text)\nprint(text)\nsys.stdout.writelines([text, text])\n"
        "import threading\n"
        "def broken(): raise ValueError(text)\n"
        "t = threading.Thread(target=broken); t.start(); t.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.count(b"]52;c;") == 3 and done.stderr.count(b"]52;c;") >= 3
    assert got_through(done.stdout + done.stderr) == []


def _with_streams(redirect: str, *arguments: object, **more: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command under a shell that redirects its streams."""
    command = ["sh", "-c", f'exec "$0" "$@" {redirect}', sys.executable, "-c", CODE, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, env=os.environ | more, check=False)


def test_streams_that_cannot_hold_a_character(pool: Path) -> None:
    w = pool / ".icl-curate"
    done = _with_streams("", "demos", "-n", 60, "-w", w, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    assert b"\\u241b]52" in done.stdout
    told = _with_streams("", "demos", "-n", 60, "-w", w, "--json", PYTHONIOENCODING="latin-1")
    assert any("漢字" in row["input"] for row in json.loads(told.stdout)["demonstrations"])
    done = _with_streams("", "prune", "--demo", "漢字 ‘…’", "-w", w, PYTHONIOENCODING="ascii")
    assert done.returncode == 2 and done.stderr.startswith(b"error: ")


def test_a_reader_that_goes_ends_it_quietly() -> None:
    for more in ([], ["--json"]):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(
            [sys.executable, "-c", CODE, "config", *more], stdout=writing, stderr=subprocess.PIPE, check=False
        )
        os.close(writing)
        assert (done.returncode, done.stderr) == (141, b"")


def test_narration_that_nobody_reads_stops_no_work(own: Path) -> None:
    folder = own / ".icl-curate" / "jobs" / "1"
    folder.mkdir(parents=True)
    told = {
        "job.json": {"arguments": ["evaluate"], "directory": str(own), "created": 1.0},
        "state.json": {"pid": 4242, "started": 1.0, "ended": 2.0, "code": 0},
        "result.json": {"run": 1},
        "events.jsonl": {"time": 1.0, "task": "ask", "done": 0, "total": 9, "note": "slow", "fields": {}},
    }
    for name, fields in told.items():
        (folder / name).write_text(json.dumps(fields) + "\n")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", CODE, "jobs", "follow", "-w", str(own / ".icl-curate"), "--json"]
    done = subprocess.run(command, stderr=writing, stdout=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.returncode == 0
    assert json.loads(done.stdout)["run"] == 1


def test_streams_that_are_closed_or_full(tmp_path: Path) -> None:
    assert [_with_streams(how, "config").returncode for how in ("2>&-", ">&- 2>&- <&-")] == [0, 0]
    done = _with_streams(">&-", "config")
    assert (done.returncode, done.stderr) == (0, b"")
    assert _with_streams("2>&-", "status", "-w", tmp_path / "none").returncode == 5
    if Path("/dev/full").exists():
        done = _with_streams("> /dev/full", "config")
        assert done.returncode == 1
        assert done.stderr.startswith(b"error: cannot write to standard output: ") and b"Traceback" not in done.stderr


@pytest.mark.parametrize("kind", SHOWN)
def test_what_prints_a_result_is_there(kind: str) -> None:
    module, name = SHOWN[kind].split(":")
    assert callable(getattr(import_module(f"icl_curate.render.{module}"), name))
