"""Whether a job's process is running: the process holds a lock on a file of the job's folder.

The lock is taken before the folder gets its number and is inherited by the process, so an existing job always has a
holder until it ends. The kernel releases the lock when the last holder ends, for whatever reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..base.errors import UsageError
from ..base.files import private

LOCK = "lock"
_CAREFUL = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


def hold(folder: Path) -> IO[bytes]:
    """Take the lock of a new job's folder."""
    file = open(folder / LOCK, "wb", opener=private)  # noqa: SIM115 - held for as long as the job lives
    _flock(file.fileno(), exclusive=True, wait=False)
    return file


def alive(folder: Path) -> bool:
    """Whether the job's process is running."""
    with _lock_of(folder) as number:
        return number is not None and not _flock(number, exclusive=False, wait=False)


def wait_for(folder: Path) -> None:
    """Sleep until the job's process has ended."""
    with _lock_of(folder) as number:
        if number is not None:
            _flock(number, exclusive=False, wait=True)


@contextmanager
def _lock_of(folder: Path) -> Iterator[int | None]:
    try:
        # opening a pipe would block, and the target of a link may be locked by anybody
        number = os.open(folder / LOCK, os.O_RDONLY | _CAREFUL)
    except OSError:
        yield None
        return
    try:
        yield number
    finally:
        os.close(number)


def _flock(number: int, *, exclusive: bool, wait: bool) -> bool:
    try:
        import fcntl
    except ImportError:
        raise UsageError(
            "background jobs need a POSIX system", "run the command itself, without --background"
        ) from None
    try:
        fcntl.flock(number, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
