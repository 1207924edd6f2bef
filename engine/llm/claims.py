"""Which prompts are being asked in a workspace now, so that processes that work there at once pay for each only once.

A prompt is claimed by a lock on one byte of a file, at an offset that its key gives. The system takes the locks of a
process away with it, however it ends: no claim is ever left over. Where bytes of files cannot be locked (Windows, some
network folders) there are no claims, and two processes may both pay for what is asked at the same moment.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..base.files import private_folder

if os.name == "nt":  # pragma: no cover

    def _lock_byte(file: int, place: int, shared: bool) -> None:
        pass

    def _unlock_byte(file: int, place: int) -> None:
        pass

else:
    import fcntl

    def _lock_byte(file: int, place: int, shared: bool) -> None:
        fcntl.lockf(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB, 1, place)

    def _unlock_byte(file: int, place: int) -> None:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, place)


FILE = "asking.lock"
"""In the workspace's folder ``tmp``."""
PRESENT = 0
"""The byte that all who ask here share."""


class Claims:
    """The claims of this process in one workspace; get them by `claims_in`."""

    def __init__(self, folder: Path) -> None:
        self._taken: set[int] = set()
        self._file: int | None = None
        self._end = 0
        """Where the byte ends that this one wrote: who comes later, and may have gone again, writes behind it."""
        self.users = 0
        self.others = False
        """Whether somebody else has been asking here, so that answers may have come since they were looked up."""
        with suppress(OSError):
            private_folder(folder / "tmp")
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            self._file = os.open(folder / "tmp" / FILE, flags, 0o600)
            os.write(self._file, b".")
            self._end = os.lseek(self._file, 0, os.SEEK_CUR)
        self.look()

    def look(self) -> None:
        """See whether others ask here, or came since: nobody else may then have the byte that all share."""
        came = self._file is not None and os.fstat(self._file).st_size > self._end
        self.others = self.others or came or not self._lock(PRESENT)
        self._lock(PRESENT, shared=True)

    def take(self, key: bytes) -> bool:
        """Claim a prompt by its key; False if it is being asked, here or by another process."""
        place = self._place(key)
        if place in self._taken or not self._lock(place):
            return False
        self._taken.add(place)
        self.look()
        return True

    def release(self, key: bytes) -> None:
        """Its answer is stored, or it is not asked any more."""
        place = self._place(key)
        self._taken.discard(place)
        if self._file is not None:
            with suppress(OSError):
                _unlock_byte(self._file, place)

    def close(self) -> None:
        """End all claims."""
        if self._file is not None:
            os.close(self._file)

    @staticmethod
    def _place(key: bytes) -> int:
        return int.from_bytes(key[:7]) + 1

    def _lock(self, place: int, shared: bool = False) -> bool:
        """False only if another process has this byte."""
        if self._file is None:
            return True
        try:
            _lock_byte(self._file, place, shared)
        except OSError as error:
            return error.errno not in (errno.EACCES, errno.EAGAIN)
        return True


_open: dict[Path, Claims] = {}
_lock = threading.Lock()


@contextmanager
def claims_in(folder: Path) -> Iterator[Claims]:
    """The claims of this process in the workspace at ``folder``, one for all who ask at once: of two open files of the
    same process, closing one would end the locks of the other."""
    folder = folder.resolve()
    with _lock:
        if folder not in _open:
            _open[folder] = Claims(folder)
        claims = _open[folder]
        claims.others = claims.others or claims.users > 0
        claims.users += 1
    try:
        yield claims
    finally:
        with _lock:
            claims.users -= 1
            if not claims.users:
                del _open[folder]
                claims.close()
