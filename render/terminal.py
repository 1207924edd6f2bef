"""All output to stdout and stderr: everything is passed through `display_text`.

`guard` replaces both by a `Stream`, so that output of Python, Typer or a library (a warning, a usage error, a log line)
also has its control characters made visible. JSON for programs, and rich consoles that have made their texts safe
themselves (`console.SafeConsole`), write with `past`.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from ..engine.base.contract import JSON_VERSION
from ..engine.base.errors import CurateError
from ..engine.pool.display import display_json, display_line, display_text, encodable_json
from .suggested import completed

LONGEST = 2_000
"""Characters shown of an error; ``--json`` has all."""

READER_GONE = 141
"""Exit code if stdout is closed, as shells report for SIGPIPE."""


LOOK_ALIKE = "look-alike"
"""Name of the error handler for output in an encoding without our lines and signs."""

ALIKE = str.maketrans("━─╸╺│┃╎█▉▊▋▌▍▎▏·…–—→←≤≥×›‹⟳●✓✗", "---" + "-||:########..--><<>x><@*vx")


def _look_alike(error: UnicodeError) -> tuple[str, int]:
    """One ASCII character for each line or sign, so that columns stay; others as Python escapes them."""
    assert isinstance(error, UnicodeEncodeError)
    shown = error.object[error.start : error.end].translate(ALIKE)
    return shown.encode("ascii", "backslashreplace").decode(), error.end


codecs.register_error(LOOK_ALIKE, _look_alike)


class Stream:
    """stdout or stderr; ``safe`` if the written text was made safe before.

    If the reader of stdout is gone, the process ends silently; any other error of stdout is a `CurateError`. Errors of
    stderr are ignored, because it only has messages.
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
        if name == "buffer":  # writing bytes would bypass the guard
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
    """Replace stdout and stderr by `Stream`s, for any terminal encoding; a closed stream is replaced by one that drops
    everything."""
    _open_what_is_closed()
    for name in ("stdout", "stderr"):
        raw = getattr(sys, name)
        if isinstance(raw, Stream):
            continue
        if raw is None:
            raw = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        elif hasattr(raw, "reconfigure"):
            raw.reconfigure(errors=LOOK_ALIKE)
        setattr(sys, name, Stream(raw, narration=name == "stderr"))


def past(stream: Any) -> TextIO:
    """The same stream for text that was made safe before."""
    stream = getattr(stream, "rich_proxied_file", stream)  # while rich draws its bars
    if isinstance(stream, Stream):
        return cast(TextIO, Stream(stream.raw, stream.narration, safe=True))
    return cast(TextIO, Stream(stream, narration=stream is sys.stderr, safe=True))


def say(text: str, *, err: bool = False) -> None:
    """A line for the user."""
    out = sys.stderr if err else sys.stdout
    out.write(display_line(completed(text)) + "\n")
    out.flush()


def print_text(text: str) -> None:
    """Lines to be copied: none is broken."""
    sys.stdout.write(display_text(text) + "\n")
    sys.stdout.flush()


def narrate(text: str) -> None:
    """Lines for the user, on stderr."""
    sys.stderr.write(display_text(completed(text)).rstrip("\n") + "\n")
    sys.stderr.flush()


def print_json(fields: Mapping[str, Any]) -> None:
    """The object of ``--json``: unchanged text in a pipe, `display_json` on a terminal."""
    out = past(sys.stdout)
    unicode = (getattr(out, "encoding", None) or "utf-8").lower().startswith("utf")
    text = json.dumps({"schema_version": JSON_VERSION, **fields}, ensure_ascii=not unicode, default=str)
    out.write((display_json(text) if out.isatty() else encodable_json(text)) + "\n")
    out.flush()


def print_error(what: str, fix: str, code: int, as_json: bool) -> None:
    """Print an error and its fix to stderr, one line each, or as one JSON object."""
    fix = completed(fix)
    with suppress(SystemExit):  # stdout is closed: print the error all the same
        sys.stdout.flush()
    if as_json:
        text = json.dumps({"schema_version": JSON_VERSION, "error": what, "fix": fix, "exit_code": code})
        sys.stderr.write(display_json(text) + "\n")  # DEL is the only control character that JSON does not escape
    else:
        sys.stderr.write(f"error: {display_line(what, LONGEST)}\n")
        if fix:
            sys.stderr.write(f"fix: {display_line(fix, LONGEST)}\n")
    sys.stderr.flush()


def end(code: int) -> NoReturn:
    """End the process; flush stdout first."""
    sys.stdout.flush()
    raise SystemExit(code)


def _discard(raw: TextIO) -> None:
    """Discard what the stream still holds and all later output: the interpreter flushes it at the end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, raw.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # no file descriptor, or closed
        pass


def _open_what_is_closed() -> None:
    """Otherwise the next opened file would get the number of a closed stdout or stderr, and output would be written
    into it."""
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
