"""The tables of docs/evidence.md are what its commands say of the recorded answers.

Those of trained methods encode every output and token of the pool, which takes longer than all else here: `make
evidence` looks at them, too.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from factories.commands import Run
from factories.vectors import compute_vectors

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def evidence() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evidence", ROOT / "benchmarks" / "evidence.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("part", "world"), [("facts", "facts"), ("untrained", "support")])
def test_the_tables_are_those_of_a_replay(
    part: str,
    world: str,
    evidence: Any,
    run: Run,
    tmp_path: Path,
    _indexed_support: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ICL_CURATE_DTYPE", "float32")
    compute_vectors(monkeypatch.setattr)  # the last bit of a vector can decide which of two rows is shown

    class Here(evidence.Workspace):  # type: ignore[misc]
        """Commands run in this process; the sample pool is indexed once for all tests, with the same options."""

        def index(self, world: str) -> None:
            if world == "support":
                shutil.copytree(_indexed_support, self.folder)
            super().index(world)

        def run(self, *arguments: object) -> dict[str, Any]:
            ran = run(*arguments, "-w", self.folder, "--json")
            assert ran.code == 0, ran.err
            return ran.json

    tables = getattr(evidence, part)(
        Here(tmp_path / "evidence", world, f"replay:{evidence.RECORDINGS / world}.parquet")
    )
    page = evidence.PAGE.read_text(encoding="utf-8")
    assert evidence.written(page, tables) == page
