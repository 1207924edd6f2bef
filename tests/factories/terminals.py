"""Commands on pseudo-terminals: a process that has imported what they need forks for each."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .patience import PATIENCE

SERVER = r"""
import base64, fcntl, io, json, os, pty, select, struct, sys, termios, time, traceback

import duckdb, numpy.ma, openai, pydantic, rich.progress, rich.table, typer.main
import icl_curate.cli, icl_curate.render.progress, icl_curate.engine.http.client
import icl_curate.engine.index.build, icl_curate.engine.llm.runner, icl_curate.engine.backends.openai.server
import icl_curate.engine.evaluate.compare, icl_curate.engine.select.preview, icl_curate.engine.jobs.folder
import icl_curate.engine.papers.calibrate.calibration, icl_curate.engine.papers.sources.audit
import icl_curate.engine.select.methods
import icl_curate.engine.export.corpus, icl_curate.render.jobs, icl_curate.render.preview, icl_curate.render.learned

made = typer.main.get_command(icl_curate.cli.app)  # for all of them: it is half of the time of a small command
made.list_commands(None)
typer.main.get_command = lambda app: made


def command(job):
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, job["width"], 0, 0))
    os.chdir(job["directory"])
    os.environ.update(job["environment"])
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    sys.stdin = open(0, closefd=False)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = io.TextIOWrapper(open(number, "wb", closefd=False), encoding="utf-8", line_buffering=True)
        setattr(sys, name, stream), setattr(sys, f"__{name}__", stream)
    sys.argv = ["icl-curate", *job["arguments"]]
    icl_curate.cli.run()


for line in iter(sys.stdin.readline, ""):
    job = json.loads(line)
    pid, fd = pty.fork()
    if pid == 0:
        code = 1
        try:
            command(job)
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)  # to take the modules down would take longer than the command
    seen, steps, until = b"", job["steps"], time.monotonic() + job["seconds"]
    while time.monotonic() < until:
        if steps and steps[0][0].encode() in seen[job.get("from", 0):]:
            job["from"] = len(seen)
            os.write(fd, steps.pop(0)[1].encode())
        if select.select([fd], [], [], 0.05)[0]:
            try:
                read = os.read(fd, 1 << 16)
            except OSError:
                break
            if not read:
                break
            seen += read
    else:
        os.kill(pid, 9)
    os.close(fd)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps({"code": code, "seen": base64.b64encode(seen).decode(), "left": steps}), flush=True)
"""


@dataclass(frozen=True)
class Shown:
    """What a terminal got from a command, its exit code, and the steps that never had their turn."""

    code: int
    seen: bytes
    left: Sequence[Sequence[str]]


class Terminals:
    """Use as a context manager."""

    def __enter__(self) -> Terminals:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)

    def __call__(
        self,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        steps: Sequence[tuple[str, str]] = (),
        width: int = 110,
        seconds: float = PATIENCE,
    ) -> Shown:
        """Run one command to its end. ``steps``: for each, once its first text has come since the one before, its
        second is typed. Killed after ``seconds``."""
        job = {
            "arguments": [str(argument) for argument in arguments],
            "environment": {"TERM": "xterm-256color", "PYTHONIOENCODING": "", **os.environ, **(environment or {})},
            "directory": str(directory or Path.cwd()), "steps": list(steps), "width": width, "seconds": seconds,
        }  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        return Shown(told["code"], base64.b64decode(told["seen"]), told["left"])
