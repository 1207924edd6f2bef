"""What is kept when the machine, the disk, the server, a file or a stranger is bad: the long fault suite.

    python benchmarks/faults.py [area …] [--short] [--only TEXT] [--seed 0] [--workers 3] [--keep DIR]

Runs the command line against workspaces that are killed, filled, spoilt, copied and shared, servers that answer
badly, and inputs that mean harm; looks at output, exit codes and files alone. Every area prints what it tried and
what fell, with how to see it again; a table sums up. Exits with 1 where anything fell. No address but 127.0.0.1 is
spoken to. The tool is the ``icl_curate`` that Python imports.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fault_areas import harness
from fault_areas.harness import COUNTED, Commands, Tally, command_lines_with_key, holds_key
from fault_areas.world import World, build

AREAS = (
    "kills",
    "replies",
    "disk",
    "corruptions",
    "inputs",
    "bombs",
    "terminal",
    "together",
    "promises",
    "money",
    "strangers",
    "slow",
    "failing",
    "account",
)


def world_of(root: Path, commands: Commands) -> World:
    folder = root / "world"
    if (folder / "ready").exists():  # of an earlier run with --keep
        files = (folder / f"{name}.jsonl" for name in ("pool", "validation", "test"))
        return World(root, commands, *files, *(folder / name for name in ("plain", "encoded", "full")))
    made = build(root, commands)
    (folder / "ready").touch()
    return made


def table(tallies: list[Tally], seconds: float) -> None:
    counts: Counter[str] = Counter()
    for tally in tallies:
        counts += tally.counts
    print(f"\n{'area':14}{'tried':>7}{'fell':>6}")
    for tally in tallies:
        print(f"{tally.area:14}{tally.tried:7}{tally.fell:6}")
    print(f"{'all':14}{sum(t.tried for t in tallies):7}{sum(t.fell for t in tallies):6}   in {seconds:.0f} s\n")
    for name in (*COUNTED, "other", "answers paid twice, within those in flight"):
        print(f"{name:44}{counts[name]:5}")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("areas", nargs="*", metavar="area", help=", ".join(AREAS))
    arguments.add_argument("--short", action="store_true", help="About an eighth of the cases.")
    arguments.add_argument("--only", default="", help="Cases whose names hold this text, to see one again.")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--workers", type=int, default=3, help="Cases at a time.")
    arguments.add_argument("--keep", type=Path, help="Work in this folder, and use the workspaces made in it before.")
    given = arguments.parse_args()
    if unknown := set(given.areas) - set(AREAS):
        arguments.error(f"unknown area {', '.join(sorted(unknown))}; one of {', '.join(AREAS)}")
    harness.only = given.only
    begun = time.monotonic()
    tallies: list[Tally] = []
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None, ignore_cleanup_errors=True) as own:
        root = given.keep or Path(own)
        root.mkdir(parents=True, exist_ok=True)
        with Commands(root) as commands:
            print(f"icl_curate of {commands.package}; load {os.getloadavg()[0]:.1f}, seed {given.seed}", flush=True)
            world = world_of(root, commands)
            for name in given.areas or AREAS:
                found = importlib.import_module(f"fault_areas.{name}").run(
                    world, given.seed, given.short, given.workers
                )
                for tally in found:
                    tally.show()
                tallies += found
            keys = Tally("keys")
            keys.case("after all", [f"the key is in {path}" for path in (*holds_key(root), *command_lines_with_key())])
            keys.show()
            tallies.append(keys)
    table(tallies, time.monotonic() - begun)
    return 1 if any(tally.falls for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
