"""Topics from the command line on the sample pool: what scripts read with ``--json``, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from factories.commands import Run, run_command
from factories.copies import made_once
from icl_curate.engine.store.workspace import Workspace

SMALL = ("--questions", 100, "--epochs", 6)


@pytest.fixture(scope="module")
def _trained(_indexed_support: Path) -> Path:
    """The sample pool after ``train topics``, and what that said."""

    def train(folder: Path) -> None:
        workspace = shutil.copytree(_indexed_support, folder / "w")
        done = run_command("train", "topics", *SMALL, "-w", workspace, "--json")
        assert done.code == 0, done.err
        (folder / "said.json").write_text(done.out, encoding="utf-8")

    return made_once("topics", train)


@pytest.fixture
def trained(_trained: Path, tmp_path: Path) -> Path:
    """A workspace of one's own with topics; what was said of them is beside it."""
    return Path(shutil.copytree(_trained, tmp_path / "trained")) / "w"


def test_from_training_to_gaps_and_selection(
    run: Run, support: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("-w", support)
    early = run("topics", *where)
    assert early.code == 2 and "train topics" in early.err
    refused = run("preview", "where is my parcel", "-m", "topick", *where)
    assert refused.code == 2 and "train topics" in refused.err

    small = (*SMALL, *where, "--json")
    dry = run("train", "topics", *small, "--dry-run").json
    assert dry["requests"] == 100 + 200 and dry["cached"] == 0
    both = run("train", "topics", *small, "--labelling-llm", "offline", "--choose-lambda", "-k", 2, "--dry-run").json
    assert both["requests"] == 100 + 100 + 4 * 100
    priced = run("train", "topics", *small, "--labelling-llm", "openai:other", "--max-cost", 1)
    assert priced.code == 2 and "price" in priced.err
    twice = run("train", "topics", *small, "--labelling-llm", "offline", "--core-topics", "core.jsonl")
    assert twice.code == 2 and "nothing to pick" in twice.err
    where, told = ("-w", trained), json.loads((trained.parent / "said.json").read_text(encoding="utf-8"))
    assert {"schema_version", "run", "llm", "calls", "cached_calls", "tokens_in", "tokens_out", "metrics"} <= set(told)
    assert (told["calls"], told["failures"]) == (300, 0)
    metrics = told["metrics"]
    assert metrics["average_precision"] > 1.5 * metrics["by_name"]["average_precision"]
    assert "does not follow instructions" in metrics["notes"][0] and not metrics["core_by_llm"]

    listed = run("topics", *where, "-n", 10_000, "--json").json
    assert len(listed["topics"]) == listed["total"] == metrics["topics"]
    assert all(0.1 <= t["knowledge"] <= 0.9 and t["active"] <= t["demonstrations"] for t in listed["topics"])
    sizes = [t["active"] for t in listed["topics"]]
    assert sizes == sorted(sizes, reverse=True)
    some = listed["topics"][0]["topic"]
    found = run("topics", *where, "--search", some, "--json").json["topics"]
    assert some in {t["topic"] for t in found} and all(some in t["topic"] for t in found)

    gaps = run("topics", "--gaps", "-n", 5, *where, "--json").json["gaps"]
    assert all({"topic", "queries", "knowledge", "coverage", "severity", "examples"} <= set(gap) for gap in gaps)
    for gap in gaps:
        assert gap["severity"] == pytest.approx(
            gap["queries"] * (1 - gap["knowledge"]) * (1 - gap["coverage"]), rel=1e-5
        )
        assert gap["queries"] >= 2

    seen = run("preview", "where is my parcel", "-m", "topick", "-k", 3, "--explain", *where, "--json").json
    assert len(seen["demonstrations"]) == 3 and all(d["adds"] for d in seen["demonstrations"][:1])
    required = [need["required"] for need in seen["needs"]]
    assert required == sorted(required, reverse=True)
    shown = run("preview", "where is my parcel", "-m", "topick", "-k", 3, "--explain", *where)
    assert seen["needs"][0]["topic"] in shown.out and "adds" in shown.out

    table = run("evaluate", "-m", "dense,topick", "--limit", 20, "-k", 4, *where, "--json").json["methods"]
    for row in table.values():
        assert len(row["topic_coverage"]) == len(row["topic_redundancy"]) == 4
        assert row["selection_ms"] > 0 and row["perplexity"] > 1
        assert row["topic_coverage"] == sorted(row["topic_coverage"]) and row["topic_redundancy"][0] == 0

    monkeypatch.setenv("ICL_CURATE_CONTEXT_TOKENS", "150")  # for one demonstration, or none
    tight = run("evaluate", "-m", "dense", "--limit", 20, "-k", 4, *where, "--json").json
    row = tight["methods"]["dense"]
    with Workspace.open(trained).read() as con:
        kept = con.execute(
            "SELECT len(demonstrations) FROM evaluations WHERE run = ? AND method = 'dense'", [tight["run"]]
        ).fetchall()
    shots = [count for (count,) in kept]
    assert row["shots"] == pytest.approx(np.mean(shots)) and len(row["topic_coverage"]) == max(shots) < 4
    assert max(row["topic_coverage"]) < table["dense"]["topic_coverage"][3]


def test_a_list_of_ones_own(run: Run, support: Path, tmp_path: Path) -> None:
    own = tmp_path / "topics.txt"
    own.write_text("# mine\nrefund\n\nparcel\nRefunds\nwarranty\n", encoding="utf-8")
    done = run("train", "topics", "--topics", own, "--questions", 0, "--epochs", 2, "-w", support, "--json")
    assert done.code == 0, done.err
    assert {t["topic"] for t in run("topics", "-w", support, "--json").json["topics"]} == {
        "refund",
        "parcel",
        "warranty",
    }
    missing = run("train", "topics", "--topics", tmp_path / "none.txt", "-w", support)
    assert missing.code == 2 and "none.txt" in missing.err


def test_pruning_leaves_gaps(run: Run, trained: Path) -> None:
    """What was covered and is pruned away is a gap, without training again."""
    where = ("-w", trained)
    before = {gap["topic"]: gap for gap in run("topics", "--gaps", "-n", 500, *where, "--json").json["gaps"]}
    sources = [s["source"] for s in run("sources", *where, "--json").json["sources"]]
    for source in sources[1:]:
        assert run("prune", "--source", source, *where).code == 0
    after = {gap["topic"]: gap for gap in run("topics", "--gaps", "-n", 500, *where, "--json").json["gaps"]}
    assert sum(gap["severity"] for gap in after.values()) > sum(gap["severity"] for gap in before.values())
    assert all(after[topic]["coverage"] <= before[topic]["coverage"] + 1e-9 for topic in before.keys() & after.keys())


def test_a_lower_rate_learns_less_in_an_epoch(run: Run, trained: Path) -> None:
    told = json.loads((trained.parent / "said.json").read_text(encoding="utf-8"))["metrics"]["epochs"]
    slow = run("train", "topics", "--questions", 100, "--epochs", 1, "--rate", 1e-5, "-w", trained, "--json")
    assert slow.code == 0, slow.err
    assert slow.json["metrics"]["epochs"][0]["loss"] > told[0]["loss"]
