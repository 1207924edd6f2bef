"""Files: special ones, private permissions, atomic writes, and messages for errors of the operating system."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from .errors import CurateError, DiskError, UsageError

KINDS: Mapping[int, str] = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
ROOM = "free some disk space and run the same command again; saved results are kept"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MENDS: Mapping[int, str] = {
    **dict.fromkeys(FULL, ROOM),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "ask for access, or choose another location"),
    errno.EROFS: "mount it writable, or choose another location",
    errno.EIO: "the disk failed: check it, and continue with a copy elsewhere",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "close other programs, or raise the limit: ulimit -n 4096"),
    errno.EFBIG: "choose a location that allows larger files",
    errno.ELOOP: "its symbolic links form a loop: correct them",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.ENOTDIR: "part of the path is a file: check the path",
    errno.ESTALE: "the network folder is no longer mounted: mount it again",
}
"""The fix for errors of the operating system, by error number."""


def fault(error: BaseException) -> CurateError | None:
    """An operating system error, or a path that it cannot have, as one line with its fix; None for other exceptions.

    Exceptions of libraries that wrap a system error are recognised by its text.
    """
    if isinstance(error, ValueError) and str(error).startswith("embedded null"):
        return UsageError("a path has a NUL character", "check the paths given, and those that the workspace has")
    number = _number(error)
    if number is None:
        return None
    where = getattr(error, "filename", None)
    what = f"{os.strerror(number)}: {os.fsdecode(where)}" if isinstance(where, str | bytes) else os.strerror(number)
    return DiskError(what[0].lower() + what[1:], _MENDS[number])


def full(error: BaseException) -> bool:
    """Whether the error means that the disk is full."""
    return _number(error) in FULL


def denied(error: BaseException) -> bool:
    """Whether the error means that a permission is missing."""
    return _number(error) in DENIED


def _number(error: BaseException) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno if error.errno in _MENDS else None
    text = str(error)
    return next((number for number in _MENDS if os.strerror(number) in text), None)


def owner(path: Path) -> str:
    """The owner if it is another user: " (it belongs to NAME, you are NAME)"; else empty."""
    try:
        uid, me = path.stat().st_uid, os.getuid()
    except (OSError, AttributeError):  # gone, or a system without file owners
        return ""
    return "" if uid == me else f" (it belongs to {_name(uid)}, you are {_name(me)})"


def _name(uid: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"user {uid}"


class Refused(OSError):
    """`open_regular` and `read_regular` do not read what is there, though its permissions would allow it."""


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file to read its bytes. Raises `OSError`, with the reason in ``strerror``, also if it is not a regular
    file: a pipe would block and a device never ends."""
    _demand_regular(os.stat(path).st_mode)  # noqa: PTH116 - a path may be text that Path would change
    stream = open(path, "rb", opener=_at_once)  # noqa: SIM115 - Path.open takes no opener
    try:
        _demand_regular(os.fstat(stream.fileno()).st_mode)  # the file may have been replaced since
    except BaseException:
        stream.close()
        raise
    return cast(BinaryIO, stream)


def read_regular(path: str | Path, most: int = -1) -> bytes:
    """All bytes of a regular file; raises as `open_regular` does, also if there are more than ``most``: in a file of
    somebody's a hole may be larger than the memory."""
    with open_regular(path) as stream:
        data = stream.read(most + 1 if most >= 0 else -1)
    if 0 <= most < len(data):
        raise Refused(errno.EINVAL, f"it has more than {most:,} bytes")
    return data


def _demand_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise Refused(errno.EINVAL, f"it is {KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file")


def _at_once(path: str, flags: int) -> int:
    """An opener that does not wait for the other end of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def strange_entry(folder: Path) -> tuple[Path, str] | None:
    """Something below a folder that is neither file nor folder, or a link that leads out of it, and what it is."""
    home = folder.resolve()
    folders = [home]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:  # without access there is nothing to be read
            for entry in entries:
                if entry.is_symlink():
                    if not Path(os.path.realpath(entry)).is_relative_to(home):
                        return Path(entry), "a link out of it"
                elif entry.is_dir():
                    folders.append(Path(entry))
                elif not entry.is_file():
                    return Path(entry), KINDS.get(stat.S_IFMT(entry.stat().st_mode), "something else")
    return None


def private(path: str, flags: int) -> int:
    """An opener, as `open` takes one: the new file is accessible to its owner only."""
    return os.open(path, flags, 0o600)


def private_folder(path: Path) -> None:
    """Create a folder and its missing parents, accessible to the owner only; an existing folder is not changed."""
    missing = [path, *path.parents]
    for folder in reversed(missing[: next((i for i, one in enumerate(missing) if one.is_dir()), len(missing))]):
        folder.mkdir(mode=0o700, exist_ok=True)


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it to ``path``; errors name ``path``."""
    private_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(temporary, "wb", opener=private) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename == str(temporary):
            error.filename = str(path)
            if error.errno == errno.ENOENT:  # its folder is there, and takes no files: /proc
                raise DiskError(f"cannot create {path}", "choose another location") from error
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
