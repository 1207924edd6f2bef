"""Waiting for another process: for how long, who is notified, and how it is stopped.

The engine prints nothing. A front end that wants to say who is waited for sets `on_wait`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..disk import private, private_folder
from ..pool.display import display_line

VARIABLE = "ICL_CURATE_PATIENCE"
FIRST, LONGEST = 0.02, 0.25
"""Seconds between two tries: after the first, and at most."""
SHOWN = 80
"""Characters of another program's command line that are shown."""


def _silent(what: str, waited: float) -> None:
    pass


on_wait: Callable[[str, float], None] = _silent
"""Called some four times a second, in the thread that waits, with what it waits for ("PID 7 (icl-curate train)") and
the seconds so far. What it raises ends the waiting."""


def patience(otherwise: float) -> float:
    """Seconds to wait for another process: what ICL_CURATE_PATIENCE says, else ``otherwise``."""
    with suppress(ValueError):
        return float(os.environ.get(VARIABLE, ""))
    return otherwise


def waits() -> Iterator[float]:
    """The seconds waited so far, again and again, with a longer sleep before each but the first."""
    began = time.monotonic()
    pause = FIRST
    while True:
        yield time.monotonic() - began
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST)


def process(pid: int | None) -> str:
    """A process as people know it: its number and, where the system tells, what it runs. None: not known which."""
    if pid is None:
        return "another process"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return f"PID {pid}"
    ours = [i for i in range(len(words)) if _is_ours(words, i)]
    told = ["icl-curate", *words[ours[0] + 1 :]] if ours else [Path(words[0]).name]
    shown = display_line(" ".join(filter(None, told)), SHOWN)
    return f"PID {pid} ({shown})" if shown else f"PID {pid}"


def _is_ours(words: list[str], i: int) -> bool:
    """Whether a word of a command line is this program: the script, the package, or code that imports it."""
    return Path(words[i]).stem in ("icl-curate", "icl_curate") or (words[i - 1] == "-c" and "icl_curate" in words[i])


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file ``path``; another process or thread that wants it waits, as `on_wait` is told. A killed
    holder's lock is freed."""
    private_folder(path.parent)
    with open(path, "a+b", opener=private) as file:
        for waited in waits():
            if _lock(file.fileno()):
                break
            file.seek(0)
            on_wait(process(_pid(file.read(20))), waited)
        with suppress(OSError):  # a full disk: who holds it is then not told
            file.truncate(0)
            os.write(file.fileno(), str(os.getpid()).encode())
        try:
            yield
        finally:
            _unlock(file.fileno())


def _pid(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None


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
