"""Running ``icl-curate``: in this process, or as one of its own where signals, pipes or a fresh interpreter matter."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import icl_curate
import typer.main

from .patience import PATIENCE

_made = typer.main.get_command
_command = cache(_made)
"""The command line, made once: it is half of the time of a small command. Those who ask for it outside of a command get
one of their own, because its options remember how they were first asked for."""

SAMPLE = Path(icl_curate.__file__).parent / "sample_data"


@dataclass(frozen=True)
class Ran:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.out))


class Run(Protocol):
    """What the fixtures ``run`` and ``run_process`` give."""

    def __call__(self, *arguments: object, stdin: str | None = None, timeout: float = PATIENCE) -> Ran: ...


class _Stream(io.TextIOWrapper):
    """Standard output or input of a command that shares our process: no terminal, UTF-8, kept in memory."""

    def __init__(self, text: str = "") -> None:
        super().__init__(io.BytesIO(text.encode()), encoding="utf-8", newline="", write_through=True)

    @property
    def text(self) -> str:
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode()


def run_command(*arguments: object, stdin: str | None = None, timeout: float = PATIENCE) -> Ran:
    """Run one command to its end in this process: a second or two sooner than a process of its own would begin."""
    from icl_curate import cli

    out, err = _Stream(), _Stream()
    with _as_if_alone(["icl-curate", *map(str, arguments)], _Stream(stdin or ""), out, err):
        try:
            cli.run()
            code: object = 0
        except SystemExit as stop:
            code = stop.code
        sys.stdout.flush()
    return Ran(code if isinstance(code, int) else 0 if code is None else 1, out.text, err.text)


@contextmanager
def _as_if_alone(argv: list[str], stdin: _Stream, out: _Stream, err: _Stream) -> Iterator[None]:
    """What a command finds and leaves behind in its process is as it was afterwards: arguments, streams, environment,
    signal handlers, what it remembers of its flags and of what was typed."""
    from icl_curate.commands.shared import state
    from icl_curate.render import suggested

    typed = dict(suggested._typed)
    before = sys.argv, sys.stdin, sys.stdout, sys.stderr, dict(os.environ)
    typer.main.get_command = _command
    told = dict(vars(state))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    sys.argv, sys.stdin, sys.stdout, sys.stderr = argv, stdin, out, err
    try:
        yield
    finally:
        typer.main.get_command = _made
        sys.argv, sys.stdin, sys.stdout, sys.stderr, environment = before
        os.environ.clear()
        os.environ.update(environment)
        for name, value in told.items():
            setattr(state, name, value)
        suggested._typed.clear()
        suggested._typed.update(typed)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def run_process(*arguments: object, stdin: str | None = None, timeout: float = PATIENCE) -> Ran:
    """Run one command to its end in a process of its own."""
    command = [sys.executable, "-c", "from icl_curate.cli import main; main()", *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)
