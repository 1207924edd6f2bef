"""Files that are broken, odd, endless or meant to do harm, given to ``index``, each with a limit in time.

Judged: an end in time, no traceback, one error line or rows skipped with their reasons, no raw control byte, bounded
memory. What the records are is not judged here.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pty
import random
import socket
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .harness import Tally, complaint, raw_bytes, scratch, wanted
from .world import World

LIMIT = 30.0
ROOM = 3 << 30
"""Bytes of memory a command may take beyond what the warm parent had."""
MEMORY = 2_000_000
"""KiB, the 400,000 of the warm parent among them."""
ROW = {"id": "a", "input": "what is it", "output": "it", "source": "s"}
LINE = json.dumps(ROW).encode() + b"\n"
FIELDS = ("id", "input", "output", "source")
ESCAPES = "\x1b]52;c;aGk=\x07\x1b[2J\x9b5m\u202eevil\x07"
Make = Callable[[Path], "Path | str | tuple[object, ...]"]
"""Writes what it needs into a folder; gives the path, or the arguments after ``index``."""


def data(name: str, content: bytes | str) -> Make:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return path

    return make


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def with_values(name: str, *values: Any) -> bytes:
    return lines(*({**ROW, "id": str(i), name: value} for i, value in enumerate(values)), {**ROW, "id": "good"})


def table(columns: dict[str, Any], name: str = "p.parquet", **options: Any) -> Make:
    def make(folder: Path) -> Path:
        pq.write_table(pa.table(columns), folder / name, **options)
        return folder / name

    return make


def parquet_with(column: str, values: Any, kind: Any = None) -> Make:
    """Three good rows with one odd column."""
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, kind)
    count = len(array)
    base: dict[str, Any] = {"input": [f"what is {i}" for i in range(count)], "output": ["x"] * count}
    return table(base | {column: array}, store_schema=True)


def spoilt_parquet(change: Callable[[bytes], bytes]) -> Make:
    def make(folder: Path) -> Path:
        buffer = io.BytesIO()
        rows = [f"what is {i}" for i in range(500)]
        pq.write_table(pa.table({"input": rows, "output": ["x"] * 500}), buffer)
        (folder / "p.parquet").write_bytes(change(buffer.getvalue()))
        return folder / "p.parquet"

    return make


def special(name: str, make_it: Callable[[Path], Any]) -> Make:
    def make(folder: Path) -> Path:
        make_it(folder / name)
        return folder / name

    return make


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def two_loops(path: Path) -> None:
    other = path.with_name("other.jsonl")
    other.symlink_to(path.name)
    path.symlink_to(other.name)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def zip_of(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("pool.jsonl", LINE)


def tar_of(path: Path) -> None:
    with tarfile.open(path, "w:gz") as file:
        info = tarfile.TarInfo("../../x.jsonl")
        info.size = len(LINE)
        file.addfile(info, io.BytesIO(LINE))


def deep_folder(folder: Path) -> tuple[object, ...]:
    (folder / "a").mkdir()
    (folder / "a" / "pool.jsonl").write_bytes(LINE)
    (folder / "a" / "again").symlink_to(folder / "a")
    return (folder / "**" / "*.jsonl",)


def odd_name(name: str) -> Make:
    def make(folder: Path) -> tuple[object, ...]:
        path = Path(os.fsdecode(os.fsencode(str(folder) + "/" + name)))
        path.write_bytes(LINE + b"broken\n")
        return (path,)

    return make


def unreadable(folder: Path) -> Path:
    path = folder / "pool.jsonl"
    path.write_bytes(LINE)
    path.chmod(0)
    return path


def deep(levels: int, inner: str = "1") -> str:
    return "[" * levels + inner + "]" * levels


def deep_dict(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def wide(count: int) -> bytes:
    return lines(ROW | {f"c{i}": i for i in range(count)})


def many_columns(folder: Path) -> Path:
    path = folder / "p.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["input", "output", *(f"c{i}" for i in range(20_000))])
        writer.writerow(["a", "b", *range(20_000)])
    return path


def bomb(name: str, mib: int, block: bytes) -> Make:
    def make(folder: Path) -> Path:
        with gzip.open(folder / name, "wb", 9) as file:
            for _ in range(mib):
                file.write(block * ((1 << 20) // len(block)))
        return folder / name

    return make


def random_bytes(name: str, seed: int) -> Make:
    return data(name, random.Random(seed).randbytes(20_000))


nested_type: Any = pa.string()
for _ in range(40):
    nested_type = pa.list_(nested_type)


def nested_value(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


CASES: dict[str, Make] = {
    # encodings
    "UTF-16 with mark": data("p.jsonl", LINE.decode().encode("utf-16")),
    "UTF-16 without mark": data("p.jsonl", LINE.decode().encode("utf-16-le")),
    "UTF-32": data("p.jsonl", LINE.decode().encode("utf-32")),
    "UTF-16 cut in a character": data("p.jsonl", LINE.decode().encode("utf-16")[:-1]),
    "UTF-7": data("p.jsonl", '{"input": "+AGEAYg-", "output": "x"}\n'),
    "Latin-1": data("p.jsonl", '{"input": "caf\xe9", "output": "x"}\n'.encode("latin-1")),
    "overlong UTF-8": data("p.jsonl", b'{"input": "\xc0\xaf", "output": "x"}\n'),
    "lone surrogate, escaped": data("p.jsonl", '{"input": "a \\ud800 b", "output": "x\\udfff"}\n'),
    "lone surrogate, as bytes": data("p.jsonl", '{"input": "a \ud800 b", "output": "x"}\n'),
    "surrogate in a name of a field": data("p.jsonl", '{"input": "a", "output": "x", "\\ud800": 1}\n'),
    "surrogate in the source": data("p.jsonl", '{"input": "a", "output": "x", "source": "s\\ud800"}\n'),
    "surrogate in the id": data("p.jsonl", '{"input": "a", "output": "x", "id": "\\udc80"}\n'),
    "surrogate in the options": data("p.jsonl", '{"input": "a", "output": "x", "options": ["x", "\\ud800"]}\n'),
    "two byte order marks": data("p.jsonl", b"\xef\xbb\xbf\xef\xbb\xbf" + LINE),
    "mark of UTF-16 alone": data("p.jsonl", b"\xff\xfe"),
    "EBCDIC": data("p.jsonl", LINE.decode().encode("cp037")),
    "NULs between": data("p.jsonl", LINE + b"\0" * 5000 + LINE),
    "NUL in a text": data("p.jsonl", '{"input": "a\\u0000b", "output": "x\\u0000"}\n'),
    "NULs alone": data("p.jsonl", b"\0" * 1_000_000),
    "noncharacters": data("p.jsonl", '{"input": "\ufffe \uffff \U0010ffff", "output": "x"}\n'),
    "escapes in every field": data("p.jsonl", lines(dict.fromkeys(FIELDS, ESCAPES))),
    "escapes in a bad row": data("p.jsonl", LINE + ESCAPES.encode() + b"\n" + lines({ESCAPES: 1})),
    "escapes in the names of fields": data("p.jsonl", lines(ROW | {ESCAPES: ESCAPES})),
    # JSON
    "nested 200,000 lists": data("p.jsonl", LINE + deep(200_000).encode() + b"\n"),
    "nested 100,000 objects": data("p.jsonl", LINE + deep_dict(100_000).encode() + b"\n"),
    "nested 900 in metadata": data("p.jsonl", f'{{"input": "a", "output": "b", "more": {deep(900)}}}\n'),
    "nested 400 in metadata": data("p.jsonl", f'{{"input": "a", "output": "b", "more": {deep_dict(400)}}}\n'),
    "nested file": data("p.json", deep(300_000)),
    "nested beside a good object": data("p.json", "[" + LINE.decode() + "," + deep(100_000) + "]"),
    "a number of 5,000 digits": data("p.jsonl", '{"input": "a", "output": ' + "9" * 5000 + "}\n"),
    "a number of 5,000 digits in metadata": data("p.jsonl", '{"input": "a", "output": "b", "n": ' + "9" * 5000 + "}\n"),
    "2 to the 70 in metadata": data("p.jsonl", with_values("n", 2**70, -(2**70))),
    "infinite numbers": data("p.jsonl", b'{"input": "a", "output": "b", "n": Infinity, "m": NaN, "k": -1e999}\n'),
    "NaN as output": data("p.jsonl", b'{"input": "a", "output": NaN}\n'),
    "wrong types as input": data("p.jsonl", with_values("input", None, 5, True, [], {}, [1], {"a": 1}, 1.5)),
    "wrong types as output": data("p.jsonl", with_values("output", None, 5, True, [], {}, [1], {"a": 1}, "")),
    "wrong types as source": data("p.jsonl", with_values("source", None, 5, True, [], {}, [1], {"a": 1}, "")),
    "wrong types as id": data("p.jsonl", with_values("id", None, 5, True, [], {}, [1], {"a": 1}, "", 2**80)),
    "wrong types as options": data("p.jsonl", with_values("options", None, 5, True, "a", {}, [1], {"text": 5}, [[]])),
    "wrong types as context": data("p.jsonl", with_values("context", None, 5, True, [], {}, [1], {"a": [1]}, [[[]]])),
    "wrong types as answers": data("p.jsonl", with_values("answers", None, 5, True, [], {}, [1], {"a": 1}, [None])),
    "wrong types as split": data("p.jsonl", with_values("split", None, 5, True, [], {}, "train", "../x")),
    "wrong types as messages": data("p.jsonl", lines(*({"messages": m} for m in (
        None, 5, [], [5], [{}], [{"role": 5}], [{"role": "user", "content": [{}]}], [{"role": "user"}] * 3)))),
    "a conversation of 5,000 turns": data("p.jsonl", lines({"messages": [
        {"role": ("user", "assistant")[i % 2], "content": f"t{i}"} for i in range(5000)]})),
    "20,000 options": data("p.jsonl", lines(ROW | {"options": [f"o{i}" for i in range(20_000)], "output": "o1"})),
    "equal options": data("p.jsonl", lines(ROW | {"options": ["it"] * 50})),
    "doubled names": data("p.jsonl", b'{"input": "a", "input": 5, "output": "x", "output": null}\n'),
    "5,000 fields": data("p.jsonl", wide(5000)),
    "array cut off": data("p.json", b"[" + LINE + b","),
    "array with rubbish behind": data("p.json", b"[" + LINE + b"] rubbish"),
    "array in JSON Lines": data("p.jsonl", b"[" + LINE.strip() + b"]\n"),
    "JSON Lines in .json": data("p.json", LINE * 3),
    "a lone number": data("p.json", b"5"),
    "object of objects": data("p.json", json.dumps({"a": {"input": "x", "output": "y"}, "b": 5})),
    "deep key": data("p.json", json.dumps({"data": {"x": [ROW]}})),
    "comments": data("p.jsonl", b"// a comment\n" + LINE),
    "single quotes": data("p.jsonl", b"{'input': 'a', 'output': 'b'}\n"),
    "carriage returns alone": data("p.jsonl", LINE.replace(b"\n", b"\r") * 3),
    "line separators in texts": data("p.jsonl", '{"input": "a\u2028b\u2029c\x85d", "output": "x"}\n'),
    "no line end": data("p.jsonl", LINE.strip()),
    "blank lines alone": data("p.jsonl", b"\n \n\t\n" * 1000),
    "empty": data("p.jsonl", b""),
    # size
    "a line of 40 MB": data("p.jsonl", b'{"input": "' + b"x" * 40_000_000 + b'", "output": "y"}\n' + LINE),
    "a line of 40 MB that is no JSON": data("p.jsonl", b"x" * 40_000_000 + b"\n" + LINE),
    "a word of 5 MB": data("p.jsonl", lines(ROW | {"input": "ab" * 2_500_000})),
    "100,000 bad rows": data("p.jsonl", b"bad\n" * 100_000 + LINE),
    "30,000 sources": data("p.jsonl", lines(*({"input": f"i{i}", "output": "o", "source": f"s{i}"}
                                             for i in range(30_000)))),
    "20,000 equal rows": data("p.jsonl", lines({"input": "the same words here", "output": "o"}) * 20_000),
    "gzip bomb of spaces": bomb("p.jsonl.gz", 1500, b" "),
    "gzip bomb of one line": bomb("p.json.gz", 600, b"["),
    "gzip bomb of short lines": bomb("p.jsonl.gz", 4, b"{}\n "),
    "gzip bomb in CSV": bomb("p.csv.gz", 300, b"a"),
    "gzip bomb by another name": bomb("p.jsonl", 1500, b"\0"),
    # compressed and packed
    "gzip cut off": data("p.jsonl.gz", gzip.compress(LINE * 1000)[:-20]),
    "gzip of gzip": data("p.jsonl.gz", gzip.compress(gzip.compress(LINE))),
    "gzip with a wrong sum": data("p.jsonl.gz", gzip.compress(LINE)[:-8] + b"\0" * 8),
    "two gzips": data("p.jsonl.gz", gzip.compress(LINE) + gzip.compress(LINE)),
    "gzip and rubbish": data("p.jsonl.gz", gzip.compress(LINE) + b"rubbish"),
    "named gzip, is none": data("p.jsonl.gz", LINE),
    "zip": special("p.zip", zip_of),
    "zip named jsonl": special("p.jsonl", zip_of),
    "tar with ..": special("p.tar.gz", tar_of),
    "zstd head": data("p.jsonl.zst", b"\x28\xb5\x2f\xfd" + b"\0" * 50),
    "random bytes as JSONL": random_bytes("p.jsonl", 1),
    "random bytes as JSON": random_bytes("p.json", 2),
    "random bytes as CSV": random_bytes("p.csv", 3),
    "random bytes as TSV": random_bytes("p.tsv", 4),
    "random bytes as Parquet": random_bytes("p.parquet", 5),
    "random bytes, no name": random_bytes("p", 6),
    # CSV
    "CSV with an open quote": data("p.csv", 'input,output\n"a,b\n' + "x,y\n" * 5000),
    "CSV with a field of 30 MB": data("p.csv", "input,output\n" + "x" * 30_000_000 + ",y\n"),
    "CSV with NULs": data("p.csv", "input,output\na\0b,c\n"),
    "CSV with rows of unequal length": data("p.csv", "input,output\na\na,b,c,d\n,\n"),
    "CSV with one column": data("p.csv", "input\na\n"),
    "CSV with doubled columns": data("p.csv", "input,input,output\na,b,c\n"),
    "CSV without names": data("p.csv", ",,\na,b,c\n"),
    "CSV with 20,000 columns": many_columns,
    "CSV with a head alone": data("p.csv", "input,output\n"),
    "CSV with semicolons": data("p.csv", "input;output\na;b\n"),
    "CSV with carriage returns": data("p.csv", "input,output\ra,b\r"),
    "CSV in UTF-16": data("p.csv", "input,output\na,b\n".encode("utf-16")),
    "CSV with formulas": data("p.csv", "input,output\n=1+1,@SUM(A1)\n-2,+cmd|' /C calc'!A0\n"),
    "CSV with lists": data("p.csv", 'input,output,options\na,x,"[' + "[" * 5000 + '"\n'),
    "CSV with calls in lists": data("p.csv", 'input,output,options\na,x,"[__import__(\'os\').system(\'true\')]"\n'),
    "CSV named TSV": data("p.tsv", "input,output\na,b\n"),
    "quotes within quotes": data("p.csv", 'input,output\n"a ""b"" c","d\n'),
    # Parquet
    "Parquet cut off": spoilt_parquet(lambda raw: raw[: len(raw) // 2]),
    "Parquet with a spoilt foot": spoilt_parquet(lambda raw: raw[:-30] + b"\xff" * 22 + raw[-8:]),
    "Parquet with spoilt pages": spoilt_parquet(lambda raw: raw[:20] + b"\xff" * 200 + raw[220:]),
    "Parquet with a huge foot": spoilt_parquet(lambda raw: raw[:-8] + b"\xff\xff\xff\x7f" + raw[-4:]),
    "Parquet of no rows": table({"input": pa.array([], pa.string()), "output": pa.array([], pa.string())}),
    "Parquet of no columns": table({}),
    "Parquet with nanoseconds": parquet_with("when", [1, 2**62 + 1, None], pa.timestamp("ns")),
    "Parquet with nanoseconds of a zone": parquet_with("when", [1, 2**62 + 1, None], pa.timestamp("ns", "Mars/Base")),
    "Parquet with far dates": parquet_with("when", [2**31 - 1, -(2**31), 0], pa.date32()),
    "Parquet with far seconds": parquet_with("when", [2**40, -(2**40), 0], pa.timestamp("s")),
    "Parquet with durations": parquet_with("took", [2**62, -(2**62), 1], pa.duration("ns")),
    "Parquet with times": parquet_with("at", [1, 86_399_999_999_999, 5], pa.time64("ns")),
    "Parquet with nanoseconds as input": table({"input": pa.array([1, 2**62 + 1], pa.timestamp("ns")),
                                                "output": ["x", "y"]}),
    "Parquet with decimals": parquet_with("price", [None, 10**37, -1], pa.decimal128(38, 0)),
    "Parquet with wide decimals": parquet_with("price", [10**70, None, -1], pa.decimal256(76, 0)),
    "Parquet with bytes": parquet_with("raw", [b"\xff\xfe", b"\0", None], pa.binary()),
    "Parquet with bytes as input": table({"input": [b"\xff\xfe", b"ok"], "output": ["x", "y"]}),
    "Parquet with half floats": parquet_with("f", pa.array([1.0, 2.0, 3.0]).cast(pa.float16())),
    "Parquet with nested lists": parquet_with("deep", [nested_value(40)] * 3, nested_type),
    "Parquet with structs": parquet_with("s", [{"a": {"b": [1, None]}}, None, {"a": None}]),
    "Parquet with maps": parquet_with("m", [[("a", 1), ("a", 2)], None, []], pa.map_(pa.string(), pa.int64())),
    "Parquet with maps of numbers": parquet_with("m", [[(1, 1)], None, []], pa.map_(pa.int64(), pa.int64())),
    "Parquet with a dictionary": parquet_with("d", pa.array(["a", "b", None]).dictionary_encode()),
    "Parquet with nulls alone": parquet_with("n", [None, None, None], pa.null()),
    "Parquet with spoilt text": parquet_with("t", pa.array([b"\xff\xfe", b"\xc0", b"ok"]).view(pa.string())),
    "Parquet with NaN": parquet_with("f", [float("nan"), float("inf"), -0.0]),
    "Parquet with huge numbers": parquet_with("n", [2**64 - 1, 0, 1], pa.uint64()),
    "Parquet named JSONL": spoilt_parquet(lambda raw: raw),
    # what is no file
    "folder": special("p.jsonl", lambda path: path.mkdir()),
    "FIFO": special("p.jsonl", os.mkfifo),
    "FIFO as CSV": special("p.csv", os.mkfifo),
    "FIFO without a name": special("p", os.mkfifo),
    "socket": special("p.jsonl", bound_socket),
    "link to itself": special("p.jsonl", loop),
    "two links to each other": special("p.jsonl", two_loops),
    "broken link": special("p.jsonl", lambda path: path.symlink_to("nowhere")),
    "link to /dev/zero": special("p.jsonl", lambda path: path.symlink_to("/dev/zero")),
    "link to /dev/zero as CSV": special("p.csv", lambda path: path.symlink_to("/dev/zero")),
    "link to /dev/zero as Parquet": special("p.parquet", lambda path: path.symlink_to("/dev/zero")),
    "link to /dev/urandom": special("p.json", lambda path: path.symlink_to("/dev/urandom")),
    "link to /dev/full": special("p.jsonl", lambda path: path.symlink_to("/dev/full")),
    "link to a terminal": special("p.jsonl", lambda path: path.symlink_to("/dev/tty")),
    "/dev/null": lambda folder: "/dev/null",
    "/dev/zero": lambda folder: "/dev/zero",
    "/dev/stdin, empty": lambda folder: "/dev/stdin",
    "/proc/self/mem": lambda folder: "/proc/self/mem",
    "/proc/self/environ": special("p.jsonl", lambda path: path.symlink_to("/proc/self/environ")),
    "unreadable": unreadable,
    # names and arguments
    "loop of folders in a glob": deep_folder,
    "a name with escapes": odd_name("p\x1b]52;c;aGk=\x07\x1b[2J.jsonl"),
    "a name with a line end": odd_name("p\nerror: forged\n.jsonl"),
    "a name that is not UTF-8": odd_name("p\udcff.jsonl"),
    "a name with a turning mark": odd_name("p\u202elnosj.jsonl"),
    "a name of 250 characters": odd_name("p" * 240 + ".jsonl"),
    "a path that is too long": lambda folder: "x/" * 3000 + "p.jsonl",
    "a path with a NUL": lambda folder: "p\0.jsonl",
    "an empty path": lambda folder: "",
    "a glob that is broken": lambda folder: "[[[",
    "a missing name with escapes": lambda folder: f"{folder}/{ESCAPES}.jsonl",
    "an address": lambda folder: "http://127.0.0.1:1/p.jsonl",
    "a map that is none": lambda folder: (data("p.jsonl", LINE)(folder), "--map", f"input={ESCAPES}"),
    "a source with escapes": lambda folder: (data("p.jsonl", LINE)(folder), "--source", ESCAPES),
    "a fraction of 5": lambda folder: (data("p.jsonl", LINE)(folder), "--validation-fraction", "5"),
    "a fraction of NaN": lambda folder: (data("p.jsonl", LINE)(folder), "--test-fraction", "nan"),
    "near-duplicate of NaN": lambda folder: (data("p.jsonl", LINE * 3)(folder), "--near-duplicate", "nan"),
    "the workspace is a file": lambda folder: (data("p.jsonl", LINE)(folder), "-w", data("w2", b"x")(folder)),
}  # fmt: skip


def run(world: World, seed: int, short: bool, workers: int) -> list[Tally]:
    tally = Tally("inputs")
    names = [name for i, name in enumerate(CASES) if wanted(name) and (not short or i % 6 == 0)]
    with ThreadPoolExecutor(workers) as several:
        for name, problems in zip(names, several.map(lambda name: one(world, name), names), strict=True):
            tally.case(name, problems, f"fault_areas/inputs.py: CASES[{name!r}], index … --no-encode")
    tally.case("standard input is a terminal", from_terminal(world), "index - on a terminal")
    return [tally]


def one(world: World, name: str, cases: Mapping[str, Make] | None = None, memory: int = MEMORY) -> list[str]:
    """What is wrong with how a case ended; ``memory``: KiB that it may take."""
    with scratch(world.root, "input") as folder:
        try:
            made = (cases or CASES)[name](folder)
        except (OSError, pa.ArrowException) as error:
            return [f"the case could not be made: {error}"]
        words = made if isinstance(made, tuple) else (made,)
        where = () if "-w" in words else ("-w", folder / "w")
        if any("\0" in str(word) for word in words):
            return []
        found = world.commands.run("index", *words, *where, "--no-encode", limit=LIMIT, memory_more=ROOM)
        problems = [complaint(found)]
        if raw := raw_bytes(found.out):
            problems.append(f"raw control bytes on stdout: {sorted(set(raw))}")
        if found.peak > memory:
            problems.append(f"memory: {found.peak >> 10} MiB")
        if found.code == 0:
            for words in (
                ("status",),
                ("demos", "-n", "3", "--json"),
                ("preview", "what is it", "-m", "bm25", "--json"),
            ):
                shown = world.commands.run(*words, "-w", folder / "w", limit=LIMIT)
                problems.append(complaint(shown) and f"{complaint(shown)} ({words[0]} after it)")
        with suppress(OSError):
            (folder / "p.jsonl").chmod(0o600)
        return problems


def from_terminal(world: World) -> list[str]:
    """``index -`` at a terminal where nobody types: said, not waited for."""
    master, slave = pty.openpty()
    try:
        with scratch(world.root, "input") as folder:
            found = world.commands.run("index", "-", "-w", folder / "w", stdin=os.ttyname(slave), limit=8)
            return [complaint(found)]
    finally:
        os.close(master)
        os.close(slave)
