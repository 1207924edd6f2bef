"""What large pools cost: time, CPU time and peak memory of each command, on files made here.

    python benchmarks/sizes.py [case …] [--scale 1.0] [--folder DIR] [--limit 1800]

Cases: rows (1 M short rows), sources (10,000 sources), labels (5,000 labels), equal (100,000 equal rows), near (100,000
nearly equal rows), file (a JSONL file of 2 GB). Each is indexed without an encoder by the command line, in processes
of their own, and then looked at: what status, sources, demos, prune, preview, export and indexing again cost. A
command that is refused is shown with its line. CPU time says more than wall time where the machine has other work.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEMS = ["ba", "re", "mi", "to", "nu", "ka", "se", "lo"]
MIDDLES = ["lin", "tor", "ven", "dak", "mur", "pel", "rin", "sob", "tak", "wim"]
WORDS = [f"{stem}{middle}{end}" for stem in STEMS for middle in MIDDLES for end in ("a", "es", "ing", "o", "ed", "er")]
Row = dict[str, Any]


def short_rows(count: int, sources: int = 20, labels: int = 12) -> Iterator[Row]:
    draw = random.Random(0)
    for i in range(count):
        text = f"{' '.join(draw.choices(WORDS, k=9))} {i}"
        yield {"id": f"r{i}", "input": text, "output": f"label {i % labels}", "source": f"s{i % sources}"}


def equal_rows(count: int) -> Iterator[Row]:
    for i in range(count):
        text = "the very same question about the parcel that has not come"
        yield {"id": f"r{i}", "input": text, "output": "delivery", "source": f"s{i % 5}"}


def near_rows(count: int) -> Iterator[Row]:
    """Of one text of thirty words every row changes one."""
    draw = random.Random(0)
    base = draw.choices(WORDS, k=30)
    for i in range(count):
        words = list(base)
        words[i % 30] = f"{draw.choice(WORDS)}{i // 30}"
        yield {"id": f"r{i}", "input": " ".join(words), "output": "delivery", "source": f"s{i % 5}"}


def long_rows(size: int) -> Iterator[Row]:
    """Rows of some 2 kB, none near another, until the file has so many bytes."""
    draw = random.Random(0)
    pieces = [" ".join(draw.choices(WORDS, k=30)) for _ in range(20_000)]
    written = i = 0
    while written < size:
        text = " ".join(draw.choices(pieces, k=10))
        yield {"id": f"r{i}", "input": text, "output": f"o{i % 9}", "source": f"s{i % 8}"}
        written, i = written + len(text) + 60, i + 1


CASES: dict[str, Callable[[float], Iterator[Row]]] = {
    "sources": lambda scale: short_rows(round(100_000 * scale), sources=max(1, round(10_000 * scale))),
    "labels": lambda scale: short_rows(round(100_000 * scale), labels=max(1, round(5_000 * scale))),
    "equal": lambda scale: equal_rows(round(100_000 * scale)),
    "near": lambda scale: near_rows(round(100_000 * scale)),
    "rows": lambda scale: short_rows(round(1_000_000 * scale)),
    "file": lambda scale: long_rows(round(2_000_000_000 * scale)),
}


@dataclass
class Cost:
    """What one command took: seconds, CPU seconds, and KiB of peak memory with mapped files (``peak``) and without
    (``own``, seen as it ran). ``said``: its error line, where there is one."""

    wall: float
    cpu: float
    peak: int
    code: int
    said: str
    own: int


def run(words: list[str], folder: Path, limit: float, program: list[str] | None = None) -> Cost:
    """Run icl-curate with these words, or another ``program``."""
    begun = time.monotonic()
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        program = program or [sys.executable, "-c", "from icl_curate.cli import main; main()", *words]
        peak = own = 0
        child = subprocess.Popen(program, stdout=out, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True)
        late = False
        while True:
            pid, status, used = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            peak, own = max(peak, memory(child.pid, "VmHWM")), max(own, memory(child.pid, "RssAnon"))
            if not late and time.monotonic() - begun > limit:
                late = True
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
            time.sleep(0.01)
    child.returncode = os.waitstatus_to_exitcode(status)
    lines = (folder / "err").read_text(errors="replace").strip().splitlines()
    said = next((line for line in lines if line.startswith("error:")), lines[-1] if lines and child.returncode else "")
    if late:
        said = f"not done after {limit:.0f} s"
    wall = time.monotonic() - begun
    return Cost(wall, used.ru_utime + used.ru_stime, peak or used.ru_maxrss, child.returncode, said, own)


def memory(pid: int, which: str) -> int:
    """KiB of a process by a field of /proc: RssAnon, without mapped files, now; VmHWM, with them, at most so far, where
    ru_maxrss begins with that of the process that started it. 0 where the system does not tell."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(which):
                return int(line.split()[1])
    return 0


def show(name: str, cost: Cost) -> None:
    fell = "" if cost.code == 0 else f"   exit code {cost.code}: {cost.said[:150]}"
    print(f"  {name:34}{cost.wall:9.2f} s{cost.cpu:9.2f} s CPU{cost.peak / 1024:8,.0f} MiB{fell}", flush=True)


def one(case: str, scale: float, folder: Path, limit: float) -> None:
    pool = folder / f"{case}.jsonl"
    count = 0
    first: Row = {}
    with pool.open("w") as file:
        for row in CASES[case](scale):
            first = first or row
            file.write(json.dumps(row) + "\n")
            count += 1
    load = os.getloadavg()[0]
    print(f"\n{case}: {count:,} rows, {pool.stat().st_size / 1e6:,.0f} MB; load of the machine {load:.1f}", flush=True)
    w = str(folder / "w")
    commands: dict[str, list[str]] = {
        "index --no-encode": ["index", str(pool), "--no-encode"],
        "index again, unchanged": ["index", str(pool), "--no-encode"],
        "status": ["status"],
        "sources": ["sources"],
        "demos": ["demos"],
        "demos --search": ["demos", "-s", first["input"][:12]],
        "demos --duplicates": ["demos", "--duplicates"],
        "preview -m bm25, first": ["preview", first["input"], "-m", "bm25"],
        "preview -m bm25, again": ["preview", first["input"][:40], "-m", "bm25"],
        "prune --source": ["prune", "--source", "s1"],
        "preview -m bm25, after it": ["preview", first["input"][:40], "-m", "bm25"],
        "undo": ["undo"],
        "export": ["export", str(folder / "o.jsonl")],
        "export --deduplicate": ["export", str(folder / "d.jsonl"), "--deduplicate"],
    }
    for name, words in commands.items():
        cost = run([*words, "-w", w], folder, limit)
        show(name, cost)
        if name == "index --no-encode" and cost.code:
            break
    size = sum(path.stat().st_size for path in (folder / "w").rglob("*") if path.is_file())
    print(f"  workspace {size / 1e6:,.0f} MB", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("cases", nargs="*", metavar="case", help=", ".join(CASES))
    arguments.add_argument("--scale", type=float, default=1.0)
    arguments.add_argument("--folder", type=Path, help="Where the files go; gone afterwards.")
    arguments.add_argument("--limit", type=float, default=1800.0, help="Seconds a command may take.")
    given = arguments.parse_args()
    if unknown := set(given.cases) - set(CASES):
        arguments.error(f"unknown case {', '.join(sorted(unknown))}; one of {', '.join(CASES)}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ICL_CURATE_"))]:
        del os.environ[name]
    for case in given.cases or CASES:
        folder = Path(tempfile.mkdtemp(prefix="sizes-", dir=given.folder))
        os.environ["ICL_CURATE_CONFIG"] = str(folder / "none.toml")
        try:
            one(case, given.scale, folder, given.limit)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
