"""Waiting for another process: how long, who is notified, and how waiting is cancelled.

The engine prints nothing. A front end sets `on_wait` to show which process is waited for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ..base.errors import LockedError
from ..base.files import private, private_folder
from ..pool.display import display_line

VARIABLE = "ICL_CURATE_PATIENCE"
FIRST, LONGEST = 0.02, 0.25
"""Seconds between two attempts: after the first, and at most."""
SHOWN = 80
"""Maximum characters shown of another program's command line."""


def _silent(what: str, waited: float) -> None:
    pass


on_wait: Callable[[str, float], None] = _silent
"""Called about four times per second, in the waiting thread, with what it waits for ("PID 7 (icl-curate train)") and
the seconds so far. An exception that it raises ends the waiting."""


def patience(otherwise: float) -> float:
    """Seconds to wait for another process: ICL_CURATE_PATIENCE if set, else ``otherwise``."""
    with suppress(ValueError):
        return float(os.environ.get(VARIABLE, ""))
    return otherwise


def waits() -> Iterator[float]:
    """Yields the seconds waited so far, again and again, with a longer sleep before each but the first."""
    began = time.monotonic()
    pause = FIRST
    while True:
        yield time.monotonic() - began
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST)


def process(pid: int | None) -> str:
    """A description of a process: its number and, if known, its command. None: unknown process."""
    if pid is None:
        return "another process"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return f"PID {pid}"
    ours = [i for i in range(len(words)) if _is_ours(words, i)]
    command = ["icl-curate", *words[ours[0] + 1 :]] if ours else [Path(words[0]).name]
    shown = display_line(" ".join(filter(None, command)), SHOWN)
    return f"PID {pid} ({shown})" if shown else f"PID {pid}"


def _is_ours(words: list[str], i: int) -> bool:
    """Whether a word of a command line is this program: the script, the package, or code that imports it."""
    return Path(words[i]).stem in ("icl-curate", "icl_curate") or (words[i - 1] == "-c" and "icl_curate" in words[i])


@contextmanager
def exclusive(path: Path, refuse: str = "") -> Iterator[None]:
    """Hold the lock file ``path``; another process or thread that wants it waits and calls `on_wait`, or, where it says
    in ``refuse`` what the holder does, raises `LockedError`. The lock of a killed holder is released."""
    private_folder(path.parent)
    with open(path, "a+b", opener=private) as file:
        _take(file, refuse)
        with suppress(OSError):  # on a full disk the holder is not recorded
            file.truncate(0)
            os.write(file.fileno(), str(os.getpid()).encode())
        try:
            yield
        finally:
            _unlock(file.fileno())


def wait_until_free(path: Path) -> None:
    """Wait, as `exclusive` does, until nobody holds the lock file ``path``; it need not exist, and is not written."""
    careful = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)  # it may be a stranger's pipe or link
    with suppress(OSError), open(path, "rb", opener=lambda name, flags: os.open(name, flags | careful)) as file:
        _take(file)
        _unlock(file.fileno())


def _take(file: IO[bytes], refuse: str = "") -> None:
    """Wait for the lock of an open file; `on_wait` gets the process that is written in it."""
    for waited in waits():
        if _lock(file.fileno()):
            return
        file.seek(0)
        pid = file.read(20)
        holder = process(int(pid) if pid.isdigit() else None)
        if refuse:
            raise LockedError(f"{holder} {refuse}", "wait for it, or stop it, then run the same command again")
        on_wait(holder, waited)


if os.name == "nt":  # pragma: no cover
    import msvcrt

    _FAR = 1 << 30
    """Offset of the locked byte: on Windows no other process can read it."""

    def _lock(descriptor: int) -> bool:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
