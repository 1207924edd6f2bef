"""Small files that unpack to gigabytes: a line, a cell, a value or an array that is far too long, by format and
compression. Judged as the area ``inputs`` is, with half of its memory."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from .harness import Tally, wanted
from .inputs import MEMORY, Make, one
from .world import World

SIZE = 1500
"""MiB of what is too long."""

SHAPES: dict[str, tuple[bytes, bytes, bytes]] = {
    "jsonl": (b'{"input": "', b"a", b'", "output": "x"}\n{"input": "b", "output": "y"}\n'),
    "json": (b'[{"input": "', b"a", b'", "output": "x"}]'),
    "csv": (b"input,output\n", b"a", b",x\nb,y\n"),
    "tsv": (b"input\toutput\n", b"a", b"\tx\nb\ty\n"),
    "yaml": (b"- input: ", b"a", b"\n  output: x\n"),
}
"""By format: what stands before, what is repeated, what follows."""


def packed(kind: str, suffix: str) -> Make:
    def make(folder: Path) -> Path:
        path = folder / f"p.{kind}{suffix}"
        before, block, after = SHAPES[kind]
        with gzip.open(path, "wb", 1) if suffix == ".gz" else pa.CompressedOutputStream(str(path), "zstd") as file:
            for part in (before, *repeated(block), after):
                file.write(part)
        return path

    return make


def repeated(block: bytes) -> Iterator[bytes]:
    for _ in range(SIZE):
        yield block * (1 << 20)


def parquet(folder: Path) -> Path:
    """One text of a megabyte, stored once, in each of 1,500 rows."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * SIZE, pa.int32()), pa.array(["a" * (1 << 20)]))
    rows = pa.table({"input": text.cast(pa.large_string()), "output": ["x"] * SIZE})
    pq.write_table(rows, folder / "p.parquet", compression="zstd")
    return folder / "p.parquet"


def workbook(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "p.xlsx", "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("[Content_Types].xml", "<Types/>")
        with parts.open("xl/sharedStrings.xml", "w", force_zip64=True) as file:
            for part in repeated(b" "):
                file.write(part)
    return folder / "p.xlsx"


CASES: dict[str, Make] = {
    **{f"{kind}{suffix}": packed(kind, suffix) for kind in SHAPES for suffix in (".gz", ".zst")},
    "one text in every row of Parquet": parquet,
    "workbook": workbook,
}


def run(world: World, seed: int, short: bool, workers: int) -> list[Tally]:
    tally = Tally("bombs")
    names = [name for i, name in enumerate(CASES) if wanted(name) and (not short or i % 4 == 0)]
    with ThreadPoolExecutor(min(workers, 2)) as several:
        judged = several.map(lambda name: one(world, name, CASES, MEMORY // 2), names)
        for name, problems in zip(names, judged, strict=True):
            tally.case(name, problems, f"fault_areas/bombs.py: CASES[{name!r}], index … --no-encode")
    return [tally]
