"""Where inputs and outputs of shards lie: in a folder or in an object store.

A file begins with the digest of the rest, and is written whole: a folder's by rename, an object by one PUT. So a file
that exists is complete, and one that was damaged since is as good as absent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from ..base.errors import UsageError
from ..base.files import replace_file
from ..base.packages import require
from ..store.request_fields import KEYED
from .shard import Arrays

_DIGEST = 16
_FOLDER = "give a shared folder: --engine-storage"


def digest_of(arrays: Arrays) -> str:
    """32 hexadecimal digits of names, shapes, types and bytes."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()


def write(uri: str, arrays: Arrays) -> None:
    """Write the arrays whole. `OSError`, or `CurateError` for an object store that refuses."""
    from safetensors.numpy import save

    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    content = hashlib.blake2b(content, digest_size=_DIGEST).digest() + content
    if not remote(uri):
        replace_file(Path(uri), lambda file: file.write(content))
        return
    with _told(uri):
        system, path = _system(uri)
        with system.open_output_stream(path) as stream:
            stream.write(content)


def read(uri: str) -> Arrays:
    """The arrays at ``uri``. `FileNotFoundError` if they are absent, `ValueError` if they are damaged."""
    from safetensors.numpy import load

    if remote(uri):
        with reading(uri) as stream:
            content = stream.read()
    else:
        content = Path(uri).read_bytes()
    if hashlib.blake2b(content[_DIGEST:], digest_size=_DIGEST).digest() != content[:_DIGEST]:
        raise ValueError(f"checksum mismatch in {uri}")
    found: Arrays = load(content[_DIGEST:])
    return found


@contextmanager
def reading(uri: str, otherwise: str = _FOLDER) -> Iterator[Any]:
    """The object at ``uri``, open. `FileNotFoundError` if it is absent, `UsageError` if the store refuses, with what to
    do ``otherwise``."""
    with _told(uri, otherwise):
        system, path = _system(uri)
        with system.open_input_stream(path) as stream:
            yield stream


def present(uri: str) -> Arrays | None:
    """The arrays at ``uri``; None if they are absent or damaged."""
    with suppress(FileNotFoundError, ValueError):
        return read(uri)
    return None


def remove(uris: Iterable[str]) -> None:
    """Remove what is at the URIs; what is absent already does not matter."""
    for uri in uris:
        if remote(uri):
            with _told(uri), suppress(FileNotFoundError):
                system, path = _system(uri)
                system.delete_file(path)
        else:
            Path(uri).unlink(missing_ok=True)


def clear(root: str, prefix: str) -> None:
    """Remove the files in ``root`` whose names begin with ``prefix``, and a folder that is empty then."""
    if not remote(root):
        # the second: what a worker was writing when it was killed
        remove(str(path) for name in (f"{prefix}*", f".{prefix}*.tmp") for path in Path(root).glob(name))
        with suppress(OSError):  # it has other files, or was never made
            Path(root).rmdir()
        return
    with _told(root):
        system, path = _system(root)
        from pyarrow import fs

        for found in system.get_file_info(fs.FileSelector(path.rstrip("/"), allow_not_found=True)):
            if found.is_file and found.base_name.startswith(prefix):
                system.delete_file(found.path)


def under(root: str, name: str) -> str:
    """The URI of ``name`` in the folder or prefix ``root``, which may have options: ``s3://bucket?region=…``."""
    if not remote(root):
        return str(Path(root).expanduser().absolute() / name)
    place, mark, options = root.partition("?")
    return f"{place.rstrip('/')}/{name}{mark}{options}"


def own(root: str, beside: Path) -> str:
    """The place in the storage ``root`` for what belongs to a folder ``beside``: several workspaces may share it."""
    return under(root, hashlib.blake2b(str(beside.absolute()).encode(), digest_size=8).hexdigest())


def remote(uri: str) -> bool:
    """Whether it is no path of this machine."""
    return "://" in uri


_systems: dict[str, tuple[Any, str]] = {}


def _system(uri: str) -> tuple[Any, str]:
    """The file system of a URI, opened once for each server and bucket, and the path in it."""
    place, mark, options = uri.partition("?")
    host = place.partition("://")[2].partition("/")[0]
    if uri.startswith("s3://") and ":" in host and not place.count("@") == host.count("@") == 1:
        raise UsageError(
            "the address of an object store holds a key that ends where nobody can tell",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead, or write / ? @ in the key as %2F %3F %40",
        )
    *server, path = f"{place}/".split("/", 3)
    bucket = f"{'/'.join(server)}/{mark}{options}"
    if bucket not in _systems:
        require(f"a storage at {_unkeyed(bucket)}", "pyarrow")
        from pyarrow import fs

        _systems[bucket] = fs.FileSystem.from_uri(bucket)
    system, root = _systems[bucket]  # its root is Arrow's, without the keys that may stand before a bucket
    return system, f"{root.rstrip('/')}/{unquote(path.rstrip('/'))}"


def _unkeyed(uri: str) -> str:
    """The URI without options, and without keys before a bucket."""
    return KEYED.sub("//", uri.partition("?")[0])


@contextmanager
def _told(uri: str, otherwise: str = _FOLDER) -> Iterator[None]:
    """Errors of an object store in one line, except that a file is absent."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        reason = re.sub("'[^']*://[^']*'", "its address", str(error).splitlines()[0])
        raise UsageError(
            f"cannot use {_unkeyed(uri)}: {reason}",
            f"check bucket, credentials (AWS_ACCESS_KEY_ID, …) and endpoint, or {otherwise}",
        ) from error
