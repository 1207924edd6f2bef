"""Does a job's process live? The kernel knows: the process holds a lock on a file of the job's folder.

The lock is taken before the folder gets its number and handed down to the process, so there is no moment in which a
job exists and nobody holds it. It is free again the moment its last holder is gone, whatever ended it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..disk import private
from ..errors import UsageError

LOCK = "lock"
_CAREFUL = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


def hold(folder: Path) -> IO[bytes]:
    """Take the lock of a new job's folder."""
    file = open(folder / LOCK, "wb", opener=private)  # noqa: SIM115 - held for as long as the job lives
    _flock(file.fileno(), exclusive=True, wait=False)
    return file


def alive(folder: Path) -> bool:
    """Does the job's process live?"""
    with _lock_of(folder) as number:
        return number is not None and not _flock(number, exclusive=False, wait=False)


def wait_for(folder: Path) -> None:
    """Sleep until the job's process is gone."""
    with _lock_of(folder) as number:
        if number is not None:
            _flock(number, exclusive=False, wait=True)


@contextmanager
def _lock_of(folder: Path) -> Iterator[int | None]:
    try:
        # a pipe would be waited for, and what a link leads to may be held by anybody
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
