"""Dry run of a command in a separate process: it can be stopped, and nothing heavy is imported here."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from ..engine.base.contract import Reported
from ..engine.base.errors import CurateError, UsageError
from ..engine.jobs import OBSERVED
from ..engine.jobs.folder import error_and_fix
from ..engine.jobs.kinds import JobCommand, read
from ..engine.jobs.start import PROGRAM, environment
from .processes import COMMANDS


def words_of(typed: str) -> list[str]:
    """The arguments of a command line, with or without the program's name; `UsageError` for an unclosed quotation
    mark."""
    try:
        words = shlex.split(typed)
    except ValueError as error:
        raise UsageError(f"cannot read the command: {error}", "close the quotation mark") from error
    return words[1:] if words[:1] == ["icl-curate"] else words


def parsed(typed: str) -> JobCommand:
    """A command line that can be a job; a `UsageError` for any other."""
    return JobCommand.of(words_of(typed)).checked()


async def dry_run_command(folder: Path, line: JobCommand, watched: Path | None = None) -> Reported:
    """What the command would do; raises the error reported by the command. The process ends with the task. It writes
    its progress into the folder ``watched``, for `JobProgress`."""
    # files and a thread, not asyncio's pipes: cancelled twice, as by an app that ends, those outlive the event loop
    with TemporaryFile() as out, TemporaryFile() as err:
        process = _started(folder, line.adding("--dry-run", "--json"), watched, out, err)
        COMMANDS.add(process.pid)
        try:
            await asyncio.to_thread(process.wait)
        except asyncio.CancelledError:
            process.kill()  # the thread takes note of its end
            raise
        finally:
            COMMANDS.discard(process.pid)
        printed, complaint = (_whole(stream) for stream in (out, err))
    if process.returncode == 0:
        with suppress(ValueError):
            return read(json.loads(printed))
    what, fix = error_and_fix(complaint)
    raise CurateError(what or "the command failed", fix)


def _started(
    folder: Path, arguments: Sequence[str], watched: Path | None, out: IO[bytes], err: IO[bytes]
) -> subprocess.Popen[bytes]:
    own = environment(folder) | ({OBSERVED: str(watched)} if watched else {})
    return subprocess.Popen([*PROGRAM, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=own)


def _whole(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", "replace")
