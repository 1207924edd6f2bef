"""Dry run of a command in a separate process: it can be stopped, and nothing heavy is imported here."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..engine.errors import CurateError, UsageError
from ..engine.jobs import OBSERVED
from ..engine.jobs.folder import error_and_fix
from ..engine.jobs.start import PROGRAM, checked, environment, with_flags
from ..render.jobs import DryRunResult, read_dry_run
from .processes import COMMANDS


def words_of(typed: str) -> list[str]:
    """The arguments of a command line, with or without the program's name; `UsageError` for an unclosed quotation
    mark."""
    try:
        words = shlex.split(typed)
    except ValueError as error:
        raise UsageError(f"cannot read the command: {error}", "close the quotation mark") from error
    return words[1:] if words[:1] == ["icl-curate"] else words


def parsed(typed: str) -> list[str]:
    """As `words_of`, and a `UsageError` if it is not a command that can be a job."""
    return list(checked(words_of(typed)))


async def dry_run_command(folder: Path, arguments: Sequence[str], watched: Path | None = None) -> DryRunResult:
    """What the command would do; raises the error reported by the command. The process ends with the task. It writes
    its progress into the folder ``watched``, for `JobProgress`."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, *with_flags(arguments, "--dry-run", "--json"),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=environment(folder) | ({OBSERVED: str(watched)} if watched else {}),
    )  # fmt: skip
    COMMANDS.add(process.pid)
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    finally:
        COMMANDS.discard(process.pid)
    if process.returncode == 0:
        with suppress(ValueError):
            return read_dry_run(dict(json.loads(out)))
    what, fix = error_and_fix(err.decode("utf-8", "replace"))
    raise CurateError(what or "the command failed", fix)
