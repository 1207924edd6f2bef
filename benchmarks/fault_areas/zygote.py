"""A warm parent: imports the tool once and forks a child for every command, so that hundreds of cases take minutes.

Reads one JSON object a line on fd 0, writes one a line on fd 1. It has no thread of its own, opens no file and runs no
command itself: a child starts as a process does that has just finished importing. Asked for with ``python zygote.py``
and the environment that says which ``icl_curate`` is meant.
"""

from __future__ import annotations

import atexit
import encodings
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import selectors
import signal
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any

PARTS = ("engine", "tui", "commands", "render")
HEAVY = ("duckdb", "numpy", "pyarrow.parquet", "safetensors.torch", "scipy.sparse", "sklearn", "openai", "tokenizers",
         "torch", "transformers", "sentence_transformers", "rich.table", "textual.app")  # fmt: skip


def warm_up() -> str:
    """Import what a command might; the folder of the package that was found."""
    package = importlib.import_module("icl_curate")
    importlib.import_module("icl_curate.cli")
    for module in pkgutil.iter_modules(encodings.__path__):  # a user who may not read this Python's folder needs them
        with suppress(Exception):
            importlib.import_module(f"encodings.{module.name}")
    for name in HEAVY:
        with suppress(Exception):
            importlib.import_module(name)
    for part in PARTS:
        with suppress(ModuleNotFoundError):
            found = importlib.import_module(f"icl_curate.{part}")
            for module in pkgutil.walk_packages(found.__path__, f"icl_curate.{part}."):
                with suppress(Exception):
                    importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
    return os.path.dirname(str(package.__file__))  # noqa: PTH120 - no pathlib before the fork


def child(asked: dict[str, Any]) -> None:
    """Become the command. Never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        standard = (
            (0, asked["stdin"], os.O_RDONLY),
            (1, asked["stdout"], os.O_WRONLY),
            (2, asked["stderr"], os.O_WRONLY),
        )
        for number, path, flags in standard:
            terminal = path.startswith("/dev/pts/")
            opened = os.open(
                path, os.O_RDWR if terminal else flags | (os.O_CREAT | os.O_APPEND if number else 0), 0o600
            )
            os.dup2(opened, number)
            os.close(opened)
        os.closerange(3, 256)
        os.chdir(asked["cwd"])
        if asked.get("vanish"):
            os.rmdir(asked["cwd"])  # noqa: PTH106
        os.environ.clear()
        os.environ.update(asked["environment"])
        if asked.get("file_limit") is not None:  # a write beyond it kills, as SIGXFSZ does where nobody ignores it
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (asked["file_limit"], asked["file_limit"]))
        if asked.get("kill_event") is not None:
            _kill_at(asked["kill_event"])
        if asked.get("memory_more"):
            with open("/proc/self/statm") as file:  # noqa: PTH123
                limit = int(file.read().split()[0]) * resource.getpagesize() + asked["memory_more"]
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        if asked.get("user"):
            os.setgid(asked["user"])
            os.setuid(asked["user"])
        sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8")  # noqa: SIM115
        sys.stdout = _text(1)
        sys.stderr = _text(2, line_buffering=True)
        sys.argv = ["icl-curate", *asked["arguments"]]
        code = _run()
    except BaseException:
        os.write(2, traceback.format_exc().encode(errors="replace"))
    os._exit(code)


def _kill_at(number: int) -> None:
    """End with SIGKILL before the file system is changed for the ``number``-th time from Python, counted from 0."""
    changes = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.link", "os.symlink"}
    left = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in changes or writes:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(hook)


def _text(number: int, line_buffering: bool = False) -> io.TextIOWrapper:
    raw = open(number, "wb", buffering=0, closefd=False)  # noqa: SIM115
    buffered: Any = io.BufferedWriter(raw)
    errors = "backslashreplace" if number == 2 else "strict"
    return io.TextIOWrapper(buffered, encoding="utf-8", errors=errors, line_buffering=line_buffering or raw.isatty())


def _run() -> int:
    """The end of a process as Python's own: code, threads awaited, exit handlers, streams flushed."""
    from icl_curate.cli import main

    code = 0
    try:
        main()
    except SystemExit as stop:
        if stop.code is not None and not isinstance(stop.code, int):
            print(stop.code, file=sys.stderr)
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:
        traceback.print_exc()
        code = 130
    except BaseException:
        traceback.print_exc()
        code = 1
    with suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]
    with suppress(Exception):
        atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = 120
    except OSError as error:
        print(f"Exception ignored while flushing: {error}", file=sys.stderr)
        code = 120
    with suppress(Exception):
        sys.stderr.flush()
    return code


def say(**told: object) -> None:
    os.write(1, json.dumps(told).encode() + b"\n")


def main() -> None:
    where = warm_up()
    reading, waking = os.pipe()
    os.set_blocking(waking, False)
    os.set_blocking(reading, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say(package=where, threads=threading.active_count())
    waited = selectors.DefaultSelector()
    waited.register(0, selectors.EVENT_READ)
    waited.register(reading, selectors.EVENT_READ)
    buffer = b""
    while True:
        for key, _ in waited.select():
            if key.fd == reading:
                with suppress(BlockingIOError):
                    os.read(reading, 4096)
                continue
            received = os.read(0, 1 << 20)
            if not received:
                os._exit(0)  # nothing to flush, and no word about what was imported
            buffer += received
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                asked = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    child(asked)
                say(number=asked["number"], pid=pid)
        with suppress(ChildProcessError):
            while True:
                pid, status, used = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                say(pid=pid, status=status, peak=used.ru_maxrss, seconds=used.ru_utime + used.ru_stime)


if __name__ == "__main__":
    main()
