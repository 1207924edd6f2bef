"""Running commands as a user does, and judging what came back: files and arguments in, output and exit codes out."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEY = "sk-fault-5ec2e7c0ffee5ec2e7c0ffee5ec2e7c0"
"""Stands in the environment of every command that is given a key, and must be found nowhere else."""
CODES = {0, 1, 2, 3, 4, 5, 130}
TRACEBACK = re.compile(
    r"Traceback \(most recent call last\)|^\w*(Error|Exception): .*\n\s+at |Fatal Python error", re.M
)
ONE_LINE = re.compile(r"^(?:error|Error): ", re.M)
RAW = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Bytes a terminal obeys, and marks that turn the reading direction: never from data."""
OWN_STYLE = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\d*[ABCDGJK]|\x1b\[\?25[lh]")
"""What rich itself sends: colours, moving and erasing lines, hiding the cursor."""
LIMIT = 60.0
only = ""
"""What the names of the cases to run must hold; set by the command line."""


def wanted(name: str) -> bool:
    return only in name


@dataclass
class Result:
    """How a command ended. ``code`` is negative for a signal; ``late``: it was ended for taking too long."""

    arguments: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float
    late: bool = False
    peak: int = 0

    @property
    def said(self) -> str:
        return self.out + self.err

    @property
    def json(self) -> dict[str, Any]:
        """The object on stdout; empty where there is none."""
        with suppress(ValueError):
            found = json.loads(self.out)
            if isinstance(found, dict):
                return found
        return {}

    @property
    def line(self) -> str:
        """The error line, or the last that was said."""
        lines = [line for line in self.err.splitlines() if line.strip()]
        found = [line for line in lines if ONE_LINE.match(line) or line.startswith('{"schema_version"')]
        return (found or lines or [""])[-1][:200]


@dataclass
class Running:
    """A command under way."""

    arguments: tuple[str, ...]
    number: int
    folder: Path
    begun: float
    pid: int = 0
    status: int | None = None
    peak: int = 0
    started: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal the process and, for SIGKILL, what it started itself."""
        if not self.ended.is_set():
            with suppress(ProcessLookupError):
                (os.killpg if number == signal.SIGKILL else os.kill)(self.pid, number)

    def wait(self, limit: float = LIMIT) -> Result:
        late = not self.ended.wait(limit)
        if late:
            self.kill()
            self.ended.wait(10)
        status = self.status if self.status is not None else 9
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        out, err = (self._text(name) for name in ("out", "err"))
        return Result(self.arguments, code, out, err, time.monotonic() - self.begun, late, self.peak)

    def _text(self, name: str) -> str:
        path = self.folder / f"{self.number}.{name}"
        if not path.exists():
            return ""
        with path.open("rb") as file:
            told = file.read(4_000_000)
        path.unlink()
        return told.decode(errors="surrogateescape")


class Commands:
    """Starts commands through the warm parent. A context manager; may be used from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = plain_environment(folder)
        self._lock = threading.Lock()
        self._count = 0
        self._running: dict[int, Running] = {}
        self._by_pid: dict[int, Running] = {}
        self.keys_seen: list[str] = []

    def __enter__(self) -> Commands:
        (self.folder / "said").mkdir(parents=True, exist_ok=True)
        program = Path(__file__).with_name("zygote.py")
        self._parent = subprocess.Popen(
            [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment,
            cwd=self.folder, start_new_session=True,
        )  # fmt: skip
        assert self._parent.stdout is not None
        self.package = Path(json.loads(self._parent.stdout.readline())["package"])
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        for running in list(self._running.values()):
            running.kill()
        self._parent.wait(10)

    def start(
        self,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        stdin: str = "/dev/null",
        terminal: str = "",
        cwd: Path | None = None,
        **limits: Any,
    ) -> Running:
        """Begin a command. ``terminal``: the path of a pty for all three streams."""
        words = tuple(str(argument) for argument in arguments)
        with self._lock:
            self._count += 1
            running = Running(words, self._count, self.folder / "said", time.monotonic())
            self._running[running.number] = running
            told = {
                "number": running.number,
                "arguments": words,
                "stdin": terminal or stdin,
                "stdout": terminal or str(running.folder / f"{running.number}.out"),
                "stderr": terminal or str(running.folder / f"{running.number}.err"),
                "cwd": str(cwd or self.folder),
                "environment": self.environment | dict(environment or {}),
                **limits,
            }
            assert self._parent.stdin is not None
            self._parent.stdin.write(json.dumps(told).encode() + b"\n")
            self._parent.stdin.flush()
        if not running.started.wait(30):
            raise RuntimeError("the warm parent does not answer")
        return running

    def run(self, *arguments: object, limit: float = LIMIT, **more: Any) -> Result:
        return self.start(*arguments, **more).wait(limit)

    def run_on_terminal(
        self, *arguments: object, limit: float = LIMIT, typed: bytes = b"", typed_after: float = 0.0, **more: Any
    ) -> Result:
        """Run on a pty of 120 by 40; everything it shows comes back as ``out``. ``typed``: keys, after so many seconds
        one by one, until it ends."""
        master, slave = pty.openpty()
        try:
            import fcntl
            import struct
            import termios

            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
            running = self.start(*arguments, terminal=os.ttyname(slave), **more)
            shown = bytearray()
            deadline, keys = time.monotonic() + limit, time.monotonic() + typed_after
            left = list(typed)
            while not running.ended.is_set() and time.monotonic() < deadline:
                _drain(master, shown, 0.05)
                if left and time.monotonic() > keys:
                    os.write(master, bytes([left.pop(0) if len(left) > 1 else left[0]]))
                    keys = time.monotonic() + 1.0
            found = running.wait(0.0 if time.monotonic() >= deadline else 5)
            _drain(master, shown, 0.0)
            found.out = shown.decode(errors="surrogateescape").replace("\r\n", "\n")
            return found
        finally:
            os.close(master)
            os.close(slave)

    def _listen(self) -> None:
        assert self._parent.stdout is not None
        waiting: dict[int, dict[str, Any]] = {}
        for line in self._parent.stdout:
            told = json.loads(line)
            if "number" in told:
                running = self._running[told["number"]]
                running.pid = told["pid"]
                self._by_pid[running.pid] = running
                running.started.set()
            else:
                waiting[told["pid"]] = told
            for pid in [pid for pid in waiting if pid in self._by_pid]:
                ended, told = self._by_pid.pop(pid), waiting.pop(pid)
                ended.status, ended.peak = told["status"], told["peak"]
                self._running.pop(ended.number, None)
                ended.ended.set()


def _drain(master: int, shown: bytearray, patience: float) -> None:
    while select.select([master], [], [], patience)[0]:
        try:
            got = os.read(master, 65536)
        except OSError:
            return
        if not got or len(shown) > 8_000_000:
            return
        shown += got


def plain_environment(folder: Path) -> dict[str, str]:
    """No developer's own settings, keys or workspace; a home of its own."""
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("OPENAI_", "ICL_CURATE_", "HF_", "XDG_"))}
    return kept | {
        "HOME": str(home),
        "ICL_CURATE_CONFIG": str(home / "config.toml"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "COLUMNS": "120",
        "PYTHONWARNINGS": "ignore",
        "NO_PROXY": "127.0.0.1,localhost",
    }


def complaint(found: Result, *, codes: set[int] = CODES, killed: bool = False) -> str:
    """What is wrong with how a command ended, whatever it was asked; empty when nothing is."""
    if TRACEBACK.search(found.said):
        last = [line for line in found.said.strip().splitlines() if line.strip()][-1]
        return f"traceback: {last[:140]}"
    if found.late:
        return f"no end in {found.seconds:.0f} s"
    if found.code < 0:
        return "" if killed else f"ended by signal {-found.code}"
    if found.code not in codes:
        return f"exit code {found.code}: {found.line}"
    if found.code not in (0, 130) and not killed:
        errors = len(ONE_LINE.findall(found.err)) + found.err.count('"error": ')
        if errors != 1:
            return f"exit code {found.code} with {errors} error lines: {found.line}"
    if KEY in found.said:
        return "the key is shown"
    if RAW.search(OWN_STYLE.sub("", found.err)):
        return f"raw control bytes on stderr: {found.line!r}"
    return ""


def raw_bytes(shown: str) -> list[str]:
    """Control bytes that did not come from rich's own drawing."""
    return RAW.findall(OWN_STYLE.sub("", shown))


@dataclass
class Fall:
    """One failure: which area and case, what went wrong, how to see it again."""

    area: str
    case: str
    what: str
    again: str


class Tally:
    """What an area tried and what fell; the counts of the final table."""

    def __init__(self, area: str) -> None:
        self.area = area
        self.tried = 0
        self.falls: list[Fall] = []
        self.counts: Counter[str] = Counter()
        self.notes: list[str] = []
        self.begun = time.monotonic()

    def case(self, name: str, problems: Sequence[str], again: str = "") -> None:
        """Count a case; each problem that is not empty is a fall, a case falls once in the line of the area."""
        self.tried += 1
        for problem in problems:
            if problem:
                self.falls.append(Fall(self.area, name, problem, again))
                self.counts[kind_of(problem)] += 1
                print(f"  FELL {self.area}: {name}: {problem}", file=sys.stderr, flush=True)
        if self.tried % 20 == 0:
            print(f"  {self.area}: {self.tried} tried, {self.fell} fell", file=sys.stderr, flush=True)

    @property
    def fell(self) -> int:
        return len({fall.case for fall in self.falls})

    def show(self) -> None:
        print(f"\n{self.area}: {self.tried} tried, {self.fell} fell ({time.monotonic() - self.begun:.0f} s)")
        for note in self.notes:
            print(f"  {note}")
        for fall in self.falls:
            print(f"  FELL {fall.case}: {fall.what}")
            if fall.again:
                print(f"       {fall.again}")
        sys.stdout.flush()


COUNTED = {
    "tracebacks": "traceback",
    "silent differences": "silent",
    "raw control bytes": "raw control",
    "lost decisions": "decision lost",
    "lost answers": "answer lost",
    "keys found": "key",
    "answers paid twice beyond those in flight": "paid twice",
    "without an end": "no end",
}
"""Line of the final table: how the problems that it counts begin or what they hold."""


def kind_of(problem: str) -> str:
    for name, mark in COUNTED.items():
        if mark in problem.split(":")[0]:
            return name
    return "other"


@contextmanager
def scratch(root: Path, name: str) -> Iterator[Path]:
    """A folder of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=root, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def wait_until(ready: Callable[[], bool], limit: float) -> bool:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if ready():
            return True
        time.sleep(0.003)
    return ready()


def holds_key(folder: Path) -> list[str]:
    """Files under a folder that hold the key."""
    found = []
    for path in folder.rglob("*"):
        with suppress(OSError):
            small = path.is_file() and not path.is_symlink() and path.stat().st_size < 64 << 20
            if small and KEY.encode() in path.read_bytes():
                found.append(str(path))
    return found


def command_lines_with_key() -> list[str]:
    """Processes of this machine whose command line holds the key."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if KEY.encode() in (line := path.read_bytes()):
                found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found
