"""The benchmark of the published noise protocol runs on relations whose published means are not known."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def wikifact() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wikifact", ROOT / "benchmarks" / "wikifact.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_relation_without_published_means_is_measured(
    wikifact: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "noise").mkdir()
    rows = [
        {
            "question": f"q{i}",
            "correct_answers": ["yes"],
            "retrieved_answers": ["yes"] * 50,
            "noise_answers": ["no"] * 50,
        }
        for i in range(12)
    ]
    (tmp_path / "noise" / "colour.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(sys, "argv", ["wikifact", str(tmp_path), "--relations", "colour", "--seeds", "1"])
    wikifact.main()
    told = capsys.readouterr().out
    assert "colour" in told and "published" not in told


def test_the_order_of_ties_decides_what_leave_one_out_prunes(wikifact: ModuleType) -> None:
    """Two sources that nobody misses: the wrong one has more answers, and a tenth of the items is dropped whole."""
    lists = wikifact.ranked_lists([["a", "b", "b"]] * 4, [["yes", "no", "no"]] * 4, [[1.0, 0.0, 0.0]] * 4)
    scores = lists.hits * 0.0
    few, many = (wikifact.published_pruning(lists, lists, scores, ties) for ties in (lists.hits, -lists.hits))
    assert (few, many) == (0.0, 1.0)
