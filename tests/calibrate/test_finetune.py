"""The fine-tuning set: what is kept, what an example shows, what is substituted, what trainers read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.calibrate_world import SETTINGS, Scripted, ScriptedAnswer, workspace_of
from icl_curate.engine.calibrate.calibration import Calibration
from icl_curate.engine.calibrate.documents import queries_of
from icl_curate.engine.calibrate.finetune import fine_tuning_set, substitute
from icl_curate.engine.calibrate.results import SetCalibration
from icl_curate.engine.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.errors import UsageError
from icl_curate.engine.export.calibration import export_calibration
from icl_curate.engine.export.corpus import ExportPlan, manifest_path
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.pool.prompts import Template
from icl_curate.engine.pool.records import Query, Task
from icl_curate.engine.store import rounds as kept
from icl_curate.engine.store import runs
from icl_curate.engine.store.reviews import save_review
from icl_curate.engine.store.workspace import Workspace


def query(name: str) -> dict[str, Any]:
    return {"id": name, "input": f"What is {name}?", "output": "yes indeed", "answers": ["yes"], "context": "A.\n\nB."}


def script(name: str, *answers: ScriptedAnswer) -> dict[tuple[str, object], ScriptedAnswer]:
    return {(name, i): said for i, said in enumerate(answers)} | {(name, "A."): ("x", 0.5), (name, "B."): ("x", 0.4)}


ANSWERS: dict[str, tuple[ScriptedAnswer, ...]] = {
    "kept": (("yes", 0.9), ("yes", 0.9), ("no", 0.9)),  # right at once
    "mended": (("no", 0.2), ("maybe", 0.3), ("yes indeed", 0.6)),  # right at round 2, unsure before
    "swapped": (("no", 0.95), ("yes", 0.6), ("yes", 0.6)),  # sure and wrong, then right
    "never": (("no", 0.2), ("no", 0.3), ("no", 0.4)),
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return workspace_of(tmp_path / "w", [query(name) for name in ANSWERS])


def state(workspace: Workspace, arms: tuple[str, ...] = ("full",), split: Any = "validation") -> SetCalibration:
    backend = Scripted({k: v for name, said in ANSWERS.items() for k, v in script(name, *said).items()})
    plan = CalibrationPlan(rounds=2, split=split, arms=arms)
    return Calibration(LLMClient(workspace, backend, SETTINGS), queries_of(workspace, split), plan).run(Budget())


def test_each_query_gives_the_input_of_the_round_that_came_right(workspace: Workspace) -> None:
    done = state(workspace)
    found = fine_tuning_set(workspace, "validation", Template())
    assert found.run == done.run
    assert found.counts == {
        "queries": 4,
        "kept_right": 1,
        "corrected": 2,
        "dropped": 1,
        "substituted": 1,
        "accepted": 0,
    }
    examples = {example.id: example.messages for example in found.examples}
    assert list(examples) == ["kept", "mended", "swapped"]
    rounds = {
        name: case.rounds for name, case in zip(ANSWERS, kept.stored_cases(workspace, done.run, "full"), strict=True)
    }
    for name, last in (("kept", 1), ("mended", 2)):  # nothing was substituted: the very prompt that was asked
        assert [(m["role"], m["content"]) for m in examples[name][:-1]] == list(rounds[name][last].messages)
    # mean of round 0: (0.1 + 0.8 + 0.05 + 0.8) / 4
    assert examples["kept"][-1] == {"role": "assistant", "content": "yes"}  # its own words, not "yes indeed"
    assert examples["mended"][-1] == {"role": "assistant", "content": "yes indeed"}
    assert examples["mended"][1]["content"].endswith(
        "Previous Generated Answer:\n"
        "Round 1: no (Uncertainty Score: 82)\nRound 2: maybe (Uncertainty Score: 73)\nAnswer:"
    )


def test_a_sure_answer_that_was_wrong_is_substituted(workspace: Workspace) -> None:
    state(workspace)
    swapped = next(e for e in fine_tuning_set(workspace, "validation", Template()).examples if e.id == "swapped")
    assert swapped.messages[1]["content"].endswith(
        "Previous Generated Answer:\nRound 1: yes indeed (Uncertainty Score: 6)\nAnswer:"
    )
    assert swapped.messages[-1]["content"] == "yes indeed"


@pytest.mark.parametrize(("score", "substituted"), [(0.0, 1), (26.0, 1), (49.9, 1), (50.0, 0), (100.0, 0)])
def test_wrong_answers_are_substituted_below_a_score_of_50(score: float, substituted: int) -> None:
    asked = Query("q?", answers=("yes",))
    rounds = [kept.StoredRound(0, (), "no", 0.5, score, False), kept.StoredRound(1, (), "Yes", 0.5, score, True)]
    earlier, count = substitute(asked, rounds, Task("open"))
    assert count == substituted
    assert [said.answer for said in earlier] == ["yes" if substituted else "no", "Yes"]


def test_an_answer_a_person_accepted_is_the_right_one(workspace: Workspace) -> None:
    state(workspace)
    row_of = {q.id: q.row for q in queries_of(workspace, "validation")}
    llm = runs.runs(workspace, "calibrate")[0].llm
    before = {e.id: e for e in fine_tuning_set(workspace, "validation", Template()).examples}
    save_review(workspace, llm, row_of["never"], 1, "no", "the reference is out of date")
    save_review(workspace, llm, row_of["mended"], 1, "maybe", "")
    save_review(workspace, llm, row_of["swapped"], None, "", "only a note")
    save_review(workspace, "another", row_of["kept"], 2, "no", "of another LLM")
    found = fine_tuning_set(workspace, "validation", Template())
    after = {e.id: e for e in found.examples}
    assert found.counts["accepted"] == 2
    assert found.counts["dropped"] == 0
    assert after["never"].messages[-1]["content"] == "no"
    assert after["mended"].messages[-1]["content"] == "maybe"
    assert "Round 2" not in after["mended"].messages[1]["content"]  # it came right a round earlier
    assert (after["kept"], after["swapped"]) == (before["kept"], before["swapped"])
    save_review(workspace, llm, row_of["never"], None, "", "")
    assert "never" not in {e.id for e in fine_tuning_set(workspace, "validation", Template()).examples}


def test_rounds_that_end_with_a_right_answer_give_the_same_set(workspace: Workspace) -> None:
    state(workspace)
    all_rounds = fine_tuning_set(workspace, "validation", Template())
    backend = Scripted({k: v for name, said in ANSWERS.items() for k, v in script(name, *said).items()})
    plan = CalibrationPlan(rounds=2, split="validation", until_correct=True)
    Calibration(LLMClient(workspace, backend, SETTINGS), queries_of(workspace, "validation"), plan).run(Budget())
    until_correct = fine_tuning_set(workspace, "validation", Template())
    assert until_correct.run != all_rounds.run
    assert (until_correct.examples, until_correct.counts) == (all_rounds.examples, all_rounds.counts)


def test_an_example_never_corrects_what_has_a_low_score(workspace: Workspace) -> None:
    state(workspace)
    for example in fine_tuning_set(workspace, "validation", Template()).examples:
        lines = example.messages[1]["content"].split("Previous Generated Answer:\n")[1].splitlines()
        assert lines.pop() == "Answer:"
        for line in lines:
            answer, score = line.split(": ", 1)[1].removesuffix(")").split(" (Uncertainty Score: ")
            if int(score) < 50:
                assert answer in ("yes", "yes indeed")


def test_without_a_walk_or_without_right_answers_the_mend_is_named(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="no validation queries have been calibrated"):
        fine_tuning_set(workspace, "validation", Template())
    state(workspace, ("plain",))
    with pytest.raises(UsageError, match="no validation queries have been calibrated"):
        fine_tuning_set(workspace, "validation", Template())
    only = workspace_of(workspace.path.parent / "never", [query("never")])
    state(only)
    with pytest.raises(UsageError, match="none of the 1 validation queries ended with a right answer"):
        fine_tuning_set(only, "validation", Template())
    with pytest.raises(UsageError, match="test queries are for evaluation"):
        fine_tuning_set(workspace, "test", Template())


def test_demonstrations_come_back_as_examples(tmp_path: Path) -> None:
    bare = {k: v for k, v in query("mended").items() if k != "context"}
    pool = [{"id": f"p{i}", "input": f"What was mended {i} times?", "output": f"thing {i}"} for i in range(4)]
    store = workspace_of(tmp_path / "w", [bare], pool)
    backend = Scripted({("mended", 0): ("no", 0.2), ("mended", 1): ("yes", 0.6)})
    plan = CalibrationPlan(rounds=1, split="validation")
    settings = replace(SETTINGS, k=2)
    done = Calibration(LLMClient(store, backend, settings), queries_of(store, "validation"), plan).run(Budget())
    (example,) = fine_tuning_set(store, "validation", Template()).examples
    assert [m["role"] for m in example.messages] == ["system", *["user", "assistant"] * 3]
    (case,) = kept.stored_cases(store, done.run, "full")
    assert [(m["role"], m["content"]) for m in example.messages[:-1]] == list(case.rounds[1].messages)


def test_the_file_is_chat_jsonl_with_a_manifest(workspace: Workspace, tmp_path: Path) -> None:
    state(workspace)
    plan = ExportPlan(tmp_path / "tuning.jsonl", "calibration", "validation")
    manifest = export_calibration(workspace, plan).written
    lines = [json.loads(line) for line in plan.out.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == manifest["counts"]["exported"]["validation"] == 3
    for line in lines:  # what OpenAI's fine-tuning and TRL's conversational format ask for
        assert set(line) == {"messages"}
        assert [m["role"] for m in line["messages"]] == ["system", "user", "assistant"]
        assert all(set(m) == {"role", "content"} and m["content"].strip() for m in line["messages"])
    assert json.loads(manifest_path(plan).read_text(encoding="utf-8")) == manifest
    entry = manifest["llama_factory"]["tuning"]
    assert (entry["file_name"], entry["formatting"], entry["columns"]["messages"]) == (
        "tuning.jsonl",
        "sharegpt",
        "messages",
    )
    with pytest.raises(UsageError, match="exists"):
        export_calibration(workspace, plan)
    assert export_calibration(workspace, replace(plan, force=True)).written["files"] == manifest["files"]


def test_the_pool_can_be_walked_for_training(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="no pool queries have been calibrated"):
        fine_tuning_set(workspace, "pool", Template())
    assert len(queries_of(workspace, "pool")) == 2
