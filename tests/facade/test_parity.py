"""Methods of `Pool` that ask or decide, each against its command on a copy of the same workspace."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run, run_command
from icl_curate import Pool

ASKED = "my parcel has not come"
FEW: Any = {"max_calls": 400, "limit": 20, "k": 2}
LIKEWISE = "--max-calls 400 --limit 20 -k 2"
OWN = {"schema_version", "run", "dry_run", "seconds", "latency_ms"}
"""Fields that differ between two runs of the same, or that only a command has."""

TELLS: dict[str, Callable[[Pool], Any]] = {
    "topics -n 3": lambda pool: pool.topics(limit=3),
    "topics --gaps -n 3": lambda pool: pool.gaps(limit=3),
    "preview ASKED --request": lambda pool: pool.request(ASKED),
    "preview ASKED --answer -k 2": lambda pool: pool.preview(ASKED, answer=True, k=2),
    "llm check": lambda pool: pool.check_llm(),
    f"calibrate --split validation {LIKEWISE}": lambda pool: pool.calibrate(split="validation", **FEW),
    "watch QUERIES --ask -k 2": lambda pool: pool.watch(pool.workspace.path.parent / "new.jsonl", ask=True, k=2),
}
DECIDES: dict[str, Callable[[Pool], Any]] = {
    f"tune {LIKEWISE}": lambda pool: pool.tune(**FEW),
    f"tune --propose {LIKEWISE}; tune apply": lambda pool: (pool.tune(propose=True, **FEW), pool.tune_apply()),
    "tune vote --noise 0": lambda pool: pool.tune_vote(0),
    "check prune duplicate": lambda pool: pool.prune_found("duplicate"),
    "check relabel": lambda pool: pool.relabel_found(),
    "suspects prune": lambda pool: pool.prune_suspects(),
    "prune --below 0.5": lambda pool: pool.prune(below=0.5),
}


def compared(told: Any) -> Any:
    """Without `OWN`, at any depth."""
    if isinstance(told, dict):
        return {key: compared(value) for key, value in told.items() if key not in OWN}
    return [compared(one) for one in told] if isinstance(told, list) else told


@pytest.fixture(scope="module")
def learned(_indexed_support: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample pool after a little training of sources and topics."""
    path = tmp_path_factory.mktemp("learned") / "w"
    shutil.copytree(_indexed_support, path)
    for line in ("train sources --depth 8 --limit 60", "train topics"):
        assert run_command(*line.split(), "-w", path).code == 0
    return path


@pytest.fixture
def two(learned: Path, tmp_path: Path) -> tuple[Pool, Path]:
    """A pool, and another workspace with the same in it."""
    rows = [{"input": f"where is parcel {i}", "output": "delivery_delay"} for i in range(5)]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    one, other = (Path(shutil.copytree(learned, tmp_path / side)) for side in ("one", "other"))
    return Pool(one, progress=False), other


@pytest.mark.parametrize("line", TELLS)
def test_a_method_says_what_its_command_says(line: str, two: tuple[Pool, Path], run: Run) -> None:
    pool, other = two
    words = {"ASKED": ASKED, "QUERIES": other.parent / "new.jsonl"}
    done = run(*(words.get(word, word) for word in line.split()), "--json", "-w", other)
    assert done.code == 0, done.err
    assert compared(TELLS[line](pool).as_json()) == compared(done.json)


@pytest.mark.parametrize("line", DECIDES)
def test_a_method_decides_what_its_command_decides(line: str, two: tuple[Pool, Path], run: Run) -> None:
    pool, other = two
    for part in line.split("; "):
        assert run(*part.split(), "-w", other).code == 0
    before = pool.rows()
    DECIDES[line](pool)
    assert pool.rows() == Pool(other).rows() != before
    (mine,), (commanded,) = pool.history(), Pool(other).history()
    assert (mine.action, mine.scope, mine.targets, mine.reason) == (
        commanded.action, commanded.scope, commanded.targets, commanded.reason,
    )  # fmt: skip


def test_a_method_shows_the_flips_of_the_command(taught: Path, run: Run) -> None:
    name = run("flips", "--json", "-w", taught).json["demonstrations"][0]["id"]
    assert compared(Pool(taught).flips(name).as_json()) == compared(
        run("flips", "show", name, "--json", "-w", taught).json
    )
