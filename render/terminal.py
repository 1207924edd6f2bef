"""The one door to stdout and stderr: whatever is written there passes `display_text` on its way.

`guard` puts a `Stream` in the place of both, so that also what Python, Typer or a library writes of its own accord (a
warning, a usage error, a log line) is made visible instead of acting on the terminal. JSON for programs, and consoles
of rich that have made their texts safe themselves (`console.SafeConsole`), write `past` it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from ..engine.contract import JSON_VERSION
from ..engine.errors import CurateError
from ..engine.pool.display import display_json, display_line, display_text, encodable_json

LONGEST = 2_000
"""Characters of an error that are shown; ``--json`` has all."""

READER_GONE = 141
"""Exit code if stdout is closed, as shells report for SIGPIPE."""


class Stream:
    """stdout or stderr; ``safe`` where what is written has been made safe already.

    A reader of stdout that is gone ends the process quietly, any other fault of stdout is a `CurateError`. stderr is
    narration: work goes on without it.
    """

    def __init__(self, raw: TextIO, narration: bool, safe: bool = False) -> None:
        self.raw, self.narration, self.safe = raw, narration, safe

    def write(self, text: str) -> int:
        shown = text if self.safe else display_text(text)
        try:
            self.raw.write(shown)
        except (OSError, ValueError) as error:
            self._failed(error)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        try:
            self.raw.flush()
        except (OSError, ValueError) as error:
            self._failed(error)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # bytes would go past
            raise AttributeError(name)
        return getattr(self.raw, name)

    def _failed(self, error: OSError | ValueError) -> None:
        _discard(self.raw)
        if self.narration:
            return
        if isinstance(error, BrokenPipeError):
            raise SystemExit(READER_GONE) from None
        raise CurateError(f"cannot write to standard output: {error}", "check where it is redirected to") from error


def guard() -> None:
    """Let nothing reach stdout and stderr but through a `Stream`, whatever the terminal's encoding can hold; a stream
    that was closed is one that drops everything."""
    _open_what_is_closed()
    for name in ("stdout", "stderr"):
        raw = getattr(sys, name)
        if isinstance(raw, Stream):
            continue
        if raw is None:
            raw = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        elif hasattr(raw, "reconfigure"):
            raw.reconfigure(errors="backslashreplace")
        setattr(sys, name, Stream(raw, narration=name == "stderr"))


def past(stream: Any) -> TextIO:
    """The same stream for what has been made safe already."""
    stream = getattr(stream, "rich_proxied_file", stream)  # while rich draws its bars
    if isinstance(stream, Stream):
        return cast(TextIO, Stream(stream.raw, stream.narration, safe=True))
    return cast(TextIO, Stream(stream, narration=stream is sys.stderr, safe=True))


def say(text: str, *, err: bool = False) -> None:
    """A line for people."""
    out = sys.stderr if err else sys.stdout
    out.write(display_line(text) + "\n")
    out.flush()


def narrate(text: str) -> None:
    """Lines for people, on stderr."""
    sys.stderr.write(display_text(text).rstrip("\n") + "\n")
    sys.stderr.flush()


def print_json(fields: Mapping[str, Any]) -> None:
    """The one object of ``--json``: in a pipe with its text as it is, on a terminal with `display_json`."""
    out = past(sys.stdout)
    unicode = (getattr(out, "encoding", None) or "utf-8").lower().startswith("utf")
    told = json.dumps({"schema_version": JSON_VERSION, **fields}, ensure_ascii=not unicode, default=str)
    out.write((display_json(told) if out.isatty() else encodable_json(told)) + "\n")
    out.flush()


def complain(what: str, fix: str, code: int, as_json: bool) -> None:
    """Print an error and its fix to stderr, one line each, or as one JSON object."""
    with suppress(SystemExit):  # stdout is closed: print the error all the same
        sys.stdout.flush()
    if as_json:
        told = json.dumps({"schema_version": JSON_VERSION, "error": what, "fix": fix, "exit_code": code})
        sys.stderr.write(display_json(told) + "\n")  # DEL is the one character that JSON leaves as it is
    else:
        sys.stderr.write(f"error: {display_line(what, LONGEST)}\n")
        if fix:
            sys.stderr.write(f"fix: {display_line(fix, LONGEST)}\n")
    sys.stderr.flush()


def end(code: int) -> NoReturn:
    """End the process; what stdout still holds goes out first."""
    sys.stdout.flush()
    raise SystemExit(code)


def _discard(raw: TextIO) -> None:
    """Have what the stream still holds, and whatever comes, go nowhere: the interpreter flushes it at the end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, raw.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # it has no descriptor, or was closed
        pass


def _open_what_is_closed() -> None:
    """The next file opened would take the number of a closed stdout or stderr, and be written into."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
