"""The tables of docs/evidence.md are what its commands say of the recorded answers.

Here that is seen of what needs no vectors: what a prompt is, which rows are selected, how answers are read, counted and
written down. Nine tenths of the whole are the vectors of the pool and of its tokens, and `make evidence` looks at every
figure before each release.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from factories.commands import Run

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def evidence() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evidence", ROOT / "benchmarks" / "evidence.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def here(evidence: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A workspace of the recorded answers by its pool, without vectors; its commands run in this process."""
    monkeypatch.setenv("ICL_CURATE_DTYPE", "float32")

    class Here(evidence.Workspace):  # type: ignore[misc]
        def run(self, *arguments: object) -> dict[str, Any]:
            more = ("--no-encode",) if arguments[0] == "index" else ()
            ran = run(*arguments, *more, "-w", self.folder, "--json")
            assert ran.code == 0, ran.err
            return ran.json

    return lambda world: Here(tmp_path, world, f"replay:{evidence.RECORDINGS / world}.parquet")


def test_the_rounds_of_a_calibration_are_those_of_a_replay(evidence: Any, here: Any) -> None:
    page = evidence.PAGE.read_text(encoding="utf-8")
    assert evidence.written(page, evidence.facts(here("facts"))) == page


def test_what_needs_no_vectors_is_that_of_a_replay(evidence: Any, here: Any) -> None:
    workspace = here("support")
    workspace.index("support")
    page = evidence.PAGE.read_text(encoding="utf-8")
    found = evidence.with_worst_and_without(workspace, ("zero", "random", "bm25"))
    in_page(page, "methods", evidence.methods_table(found, 0))
    ways = {"as it came": (), "only true rows": evidence.only(evidence.wrong_rows())}
    in_page(page, "curation", evidence.gains(workspace, ways, ("bm25",), 60, 5))


def in_page(page: str, name: str, table: str) -> None:
    """Whether each row of a table stands in the page's, which may have more rows and more columns."""
    marked = page.split(f"<!-- evidence: {name} -->\n", 1)[1]
    theirs, found = cells(marked), cells(table)
    assert len(found) > 1
    for row, figures in found.items():
        assert figures.items() <= theirs[row].items(), row


def cells(table: str) -> dict[str, dict[str, str]]:
    """A table's cells by row and column: the name of a column of intervals is that before it and its own. Without the
    share of the gap, which is that of the last method."""
    heads, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines_of(table)]
    names = [f"{before} {head}" if head == "95 %" else head for before, head in zip(["", *heads], heads, strict=False)]
    return {row[0]: {name: cell for name, cell in zip(names, row, strict=True) if name != "gap closed"} for row in rows}


def lines_of(table: str) -> list[str]:
    lines = table.splitlines()
    return lines[: next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))]
