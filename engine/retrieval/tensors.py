"""Reading safetensors files as memory maps, safely for any content, and the header for writing one in parts."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_HEAD = 100_000_000
"""Maximum bytes of a safetensors header, as in the format's own library."""

KINDS = {
    name: np.dtype(kind)
    for name, kind in (
        ("U8", np.uint8),
        ("U32", np.uint32),
        ("I32", np.int32),
        ("I64", np.int64),
        ("U64", np.uint64),
        ("F16", np.float16),
        ("F32", np.float32),
    )
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
