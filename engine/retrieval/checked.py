"""Integrity of files: whether they are unchanged since they were written; safetensors files as memory maps, safely for
any content.

Everything stored beside the DuckDB file can be damaged, swapped or left behind by a restored database, and a changed
vector or weight still computes. So a file is used only if it agrees with a checksum that was written with it: caches
contain their own (`save_sealed`), those of trained models are stored with their run in the database (`check_model`).

Whether the content belongs to this database is a second question. Each cache answers it with the content of the rows it
was computed from. A random identity of the database would add nothing: an older copy has the same one, and equal rows
with equal numbers give equal results.

Reading a gigabyte takes most of a second. Results for large files are therefore remembered as long as their size, times
and inode do not change. Damage that changes none of these, such as that of a failing disk, is found by ``index`` in
vectors and lexical index, which it reads completely each time; in the band keys and in models it is not found.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..base.errors import WorkspaceError
from ..base.files import replace_file
from ..store import runs
from ..store.workspace import Workspace

MOST_HEAD = 100_000_000
"""Maximum bytes of a safetensors header, as in the format's own library."""

KINDS = {
    name: np.dtype(kind)
    for name, kind in {"U8": "u1", "U32": "u4", "I32": "i4", "I64": "i8", "U64": "u8", "F16": "f2", "F32": "f4"}.items()
}
_NAMES = {kind: name for name, kind in KINDS.items()}


def in_order(arrays: Mapping[str, NDArray[Any]]) -> list[tuple[str, NDArray[Any]]]:
    """The arrays as they follow each other in a file: those of larger elements first, so that all are aligned."""
    return sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))


def header(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """What precedes the bytes of the arrays, `in_order`, in a safetensors file. `KeyError` for a type that is not among
    `KINDS`."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    begin = 0
    for name, array in in_order(arrays):
        end = begin + array.nbytes
        entries[name] = {"dtype": _NAMES[array.dtype], "shape": array.shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def parts_of(arrays: Mapping[str, NDArray[Any]]) -> list[memoryview]:
    """The bytes of the arrays, `in_order`. None is copied if all are contiguous."""
    return [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for _, array in in_order(arrays)]


def map_safetensors(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The tensors of a safetensors file as read-only views of one memory map, and its metadata.

    Raises `OSError` or `ValueError` if there is no such file or it is incomplete.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(size - 8, MOST_HEAD):
            raise ValueError("its header is truncated or damaged")
        try:
            head = json.loads(file.read(length))
        except RecursionError as error:
            raise ValueError("its header is not a list of tensors") from error
    if not isinstance(head, dict):
        raise ValueError("its header is not a list of tensors")
    metadata = head.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise ValueError("its metadata is damaged")
    begin = 8 + length
    data = np.memmap(path, np.uint8, "r", offset=begin) if size > begin else np.empty(0, np.uint8)
    return {name: _tensor(data, name, entry) for name, entry in head.items()}, metadata


def _tensor(data: NDArray[np.uint8], name: str, entry: Any) -> NDArray[Any]:
    """One tensor, by its header entry. Raises `ValueError` if the two disagree."""
    try:
        begin, end = map(operator.index, entry["data_offsets"])
        shape = tuple(map(operator.index, entry["shape"]))
        kind = KINDS[entry["dtype"]]
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(f"the header entry of {name} is damaged") from error
    if not 0 <= begin <= end <= len(data) or min(shape, default=0) < 0:
        raise ValueError(f"the data of {name} is missing")
    if math.prod(shape) * kind.itemsize != end - begin:
        raise ValueError(f"{name} has the wrong size")
    return np.asarray(data[begin:end]).view(kind).reshape(shape)


SMALL = 4 << 20
"""Files with fewer bytes are read each time."""

SETTLED = 0.02
"""Seconds after which a second change of a file surely gets another time stamp: systems count in ticks of up to 10
ms."""

MEMORY = "checked.json"
_BLANK = "0" * 32
_SEAL = re.compile(rb'"seal":"([0-9a-f]{32})"')

_found: dict[str, tuple[list[list[int]], str]] = {}


def cached_check(paths: Sequence[Path], check: Callable[[], str], *, reread: bool = False) -> str:
    """The result of ``check`` for the files, or the remembered one if they have not changed; ``reread`` always looks.

    Remembered in this process and, if the folder of the first file is writable, for others.
    """
    signatures = _signatures(paths)
    if sum(size for size, *_ in signatures) < SMALL:
        return check()
    memory, name = paths[0].parent / MEMORY, paths[0].name
    if not reread:
        for kept in (_found.get(str(paths[0])), _read(memory).get(name)):
            if kept and kept[0] == signatures:
                return kept[1]
    latest = max(max(mtime, ctime) for _, mtime, ctime, _ in signatures)
    time.sleep(min(max(SETTLED - (time.time() - latest / 1e9), 0), SETTLED))
    signatures = _signatures(paths)
    result = check()
    if _signatures(paths) == signatures:
        _found[str(paths[0])] = signatures, result
        text = json.dumps(_read(memory) | {name: (signatures, result)})
        with suppress(OSError):  # then the next process checks again
            replace_file(memory, lambda file: file.write(text.encode()))
    return result


def _signatures(paths: Sequence[Path]) -> list[list[int]]:
    found = [path.stat() for path in paths]
    return [[stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino] for stat in found]


def _read(memory: Path) -> dict[str, tuple[list[list[int]], str]]:
    try:
        entries = json.loads(memory.read_text(encoding="utf-8"))
        return {name: (signatures, str(found)) for name, (signatures, found) in entries.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def digest_of(path: Path) -> str:
    """32 hexadecimal digits of a file's bytes. `OSError` if it cannot be read."""

    def check() -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, _digest).hexdigest()

    return cached_check([path], check)


def _digest(data: bytes = b"") -> Any:
    return hashlib.blake2b(data, digest_size=16)


# caches: files that contain the digest of their own bytes


def save_sealed(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write arrays as one safetensors file, atomically, with the digest of all its bytes in its header. None is copied
    if all are contiguous."""
    parts = parts_of(arrays)
    head = header(arrays, {**metadata, "seal": _BLANK})
    digest = _digest(head)
    for part in parts:
        digest.update(part)
    sealed = head.replace(f'"seal":"{_BLANK}"'.encode(), f'"seal":"{digest.hexdigest()}"'.encode(), 1)

    def write(file: BinaryIO) -> None:
        file.write(sealed)
        for part in parts:
            file.write(part)

    replace_file(path, write)
    cached_check([path], lambda: "whole", reread=True)  # just written, so it need not be checked


def map_sealed(path: Path, *, reread: bool = False) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays written by `save_sealed`, as memory maps. `OSError` or `ValueError` if the file is missing or
    differs."""
    if cached_check([path], lambda: "whole" if _agrees(path) else "damaged", reread=reread) != "whole":
        raise ValueError("checksum mismatch")
    return map_safetensors(path)


def _agrees(path: Path) -> bool:
    """Whether the seal in a file's header is the digest of its bytes."""
    digest = _digest()
    with path.open("rb") as file:
        start = file.read(1 << 20)  # the header is shorter
        seal = _SEAL.search(start)
        if seal is None:
            return False
        digest.update(start[: seal.start(1)] + _BLANK.encode() + start[seal.end(1) :])
        while block := file.read(1 << 20):
            digest.update(block)
    return bool(digest.hexdigest() == seal[1].decode())


# trained models: their digests are stored with their run


def seal_model(workspace: Workspace, run: int, folder: Path, names: Sequence[str]) -> None:
    """Store the digests of a run's model files in the database."""
    runs.keep_files(workspace, run, {name: digest_of(folder / name) for name in names})


def check_model(workspace: Workspace, run: int, folder: Path, what: str, fix: str) -> None:
    """Raise `WorkspaceError` unless a run's model files are those it wrote. ``what`` names the model and ``fix`` the
    command that trains it."""
    noted = runs.files(workspace).get(run)
    if not noted:
        raise WorkspaceError(f"run {run} has no {what}", fix)
    for name, digest in noted.items():
        try:
            found = digest_of(folder / name)
        except OSError as error:
            raise WorkspaceError(f"run {run}'s {what} lacks {name}: {error.strerror}", fix) from error
        if found != digest:
            raise WorkspaceError(f"run {run}'s {what} is damaged: checksum mismatch in {name}", fix)
