"""Writing beside the DuckDB file so that a kill at any moment leaves what was there before, or what comes after."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..disk import private


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then put it in its place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(temporary, "wb", opener=private) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def map_safetensors(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The tensors of a safetensors file as read-only views of one memory map, and its metadata.

    Raises `OSError` or `ValueError` when there is no such file or it is not whole.
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(size))
    data = np.memmap(path, np.uint8, "r", offset=8 + size)
    metadata = head.pop("__metadata__", {})
    kinds = {"U8": np.uint8, "U32": np.uint32, "I32": np.int32, "I64": np.int64, "F16": np.float16, "F32": np.float32}
    arrays: dict[str, NDArray[Any]] = {}
    for name, entry in head.items():
        begin, end = entry["data_offsets"]
        arrays[name] = np.asarray(data[begin:end]).view(kinds[entry["dtype"]]).reshape(entry["shape"])
    return arrays, metadata
