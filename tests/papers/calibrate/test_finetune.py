"""The fine-tuning set: what is kept, what an example shows, what is substituted, what trainers read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.calibrate_world import SETTINGS, Scripted, ScriptedAnswer, workspace_of
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.export.corpus import ExportPlan, export, manifest_path
from icl_curate.engine.export.results import ExportReport
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.papers.calibrate import stored as kept
from icl_curate.engine.papers.calibrate.calibration import Calibration
from icl_curate.engine.papers.calibrate.documents import queries_of
from icl_curate.engine.papers.calibrate.finetune import (
    LEARNT,
    TrainingConversation,
    answer_set,
    export_calibration,
    few_corrections,
    fine_tuning_set,
    substitute,
)
from icl_curate.engine.papers.calibrate.results import QueryCalibration, SetCalibration
from icl_curate.engine.papers.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.papers.calibrate.rounds import Grades
from icl_curate.engine.papers.calibrate.stored import save_review
from icl_curate.engine.pool.records import Query, Task
from icl_curate.engine.store import runs
from icl_curate.engine.store.decisions import decide, relabel
from icl_curate.engine.store.settings import Settings
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


def state(
    workspace: Workspace,
    arms: tuple[str, ...] = ("full",),
    split: Any = "validation",
    answers: Mapping[str, tuple[ScriptedAnswer, ...]] = ANSWERS,
    settings: Settings = SETTINGS,
) -> SetCalibration:
    backend = Scripted({k: v for name, said in answers.items() for k, v in script(name, *said).items()})
    plan = CalibrationPlan(rounds=2, split=split, arms=arms)
    done = Calibration.prepare(LLMClient(workspace, backend, settings), queries_of(workspace, split), plan).ask(
        Budget()
    )
    assert isinstance(done, SetCalibration)
    return done


def test_each_query_gives_the_input_of_the_round_that_came_right(workspace: Workspace) -> None:
    done = state(workspace)
    found = fine_tuning_set(workspace, "validation", SETTINGS)
    assert found.run == done.run
    assert found.counts == {
        "queries": 4,
        "kept_right": 1,
        "corrected": 2,
        "dropped": 1,
        "pruned": 0,
        "outdated": 0,
        "substituted": 1,
        "accepted": 0,
        "left_out": 0,
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
    swapped = next(e for e in fine_tuning_set(workspace, "validation", SETTINGS).examples if e.id == "swapped")
    assert swapped.messages[1]["content"].endswith(
        "Previous Generated Answer:\nRound 1: yes indeed (Uncertainty Score: 6)\nAnswer:"
    )
    assert swapped.messages[-1]["content"] == "yes indeed"


@pytest.mark.parametrize(("score", "substituted"), [(0.0, 1), (26.0, 1), (49.9, 1), (50.0, 0), (100.0, 0)])
def test_wrong_answers_are_substituted_below_a_score_of_50(score: float, substituted: int) -> None:
    asked = Query("q?", answers=("yes",))
    rounds = [kept.StoredRound(0, (), "no", 0.5, score, False), kept.StoredRound(1, (), "Yes", 0.5, score, True)]
    earlier, count = substitute(asked, rounds, Grades(Task("open")))
    assert count == substituted
    assert [said.answer for said in earlier] == ["yes" if substituted else "no", "Yes"]


def test_an_answer_a_person_accepted_is_the_right_one(workspace: Workspace) -> None:
    state(workspace)
    row_of = {q.id: q.row for q in queries_of(workspace, "validation")}
    llm = runs.runs(workspace, "calibrate")[0].llm
    before = {e.id: e for e in fine_tuning_set(workspace, "validation", SETTINGS).examples}
    save_review(workspace, llm, row_of["never"], 1, "no", "the reference is out of date")
    save_review(workspace, llm, row_of["mended"], 1, "maybe", "")
    save_review(workspace, llm, row_of["swapped"], None, "", "only a note")
    save_review(workspace, "another", row_of["kept"], 2, "no", "of another LLM")
    found = fine_tuning_set(workspace, "validation", SETTINGS)
    after = {e.id: e for e in found.examples}
    assert found.counts["accepted"] == 2
    assert found.counts["dropped"] == 0
    assert after["never"].messages[-1]["content"] == "no"
    assert after["mended"].messages[-1]["content"] == "maybe"
    assert "Round 2" not in after["mended"].messages[1]["content"]  # it came right a round earlier
    assert (after["kept"], after["swapped"]) == (before["kept"], before["swapped"])
    save_review(workspace, llm, row_of["never"], None, "", "")
    assert "never" not in {e.id for e in fine_tuning_set(workspace, "validation", SETTINGS).examples}


def test_rounds_that_end_with_a_right_answer_give_the_same_set(workspace: Workspace) -> None:
    state(workspace)
    all_rounds = fine_tuning_set(workspace, "validation", SETTINGS)
    backend = Scripted({k: v for name, said in ANSWERS.items() for k, v in script(name, *said).items()})
    plan = CalibrationPlan(rounds=2, split="validation", until_correct=True)
    Calibration.prepare(LLMClient(workspace, backend, SETTINGS), queries_of(workspace, "validation"), plan).ask(
        Budget()
    )
    until_correct = fine_tuning_set(workspace, "validation", SETTINGS)
    assert until_correct.run != all_rounds.run
    assert (until_correct.examples, until_correct.counts) == (all_rounds.examples, all_rounds.counts)


def test_an_example_never_corrects_what_has_a_low_score(workspace: Workspace) -> None:
    state(workspace)
    for example in fine_tuning_set(workspace, "validation", SETTINGS).examples:
        lines = example.messages[1]["content"].split("Previous Generated Answer:\n")[1].splitlines()
        assert lines.pop() == "Answer:"
        for line in lines:
            answer, score = line.split(": ", 1)[1].removesuffix(")").split(" (Uncertainty Score: ")
            if int(score) < 50:
                assert answer in ("yes", "yes indeed")


def test_without_a_walk_or_without_right_answers_the_mend_is_named(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="no validation queries have been calibrated"):
        fine_tuning_set(workspace, "validation", SETTINGS)
    state(workspace, ("plain",))
    with pytest.raises(UsageError, match="no validation queries have been calibrated"):
        fine_tuning_set(workspace, "validation", SETTINGS)
    only = workspace_of(workspace.path.parent / "never", [query("never")])
    state(only)
    with pytest.raises(UsageError, match="none of the 1 validation queries ended with a right answer"):
        fine_tuning_set(only, "validation", SETTINGS)
    with pytest.raises(UsageError, match="test queries are for evaluation"):
        fine_tuning_set(workspace, "test", SETTINGS)


def test_demonstrations_come_back_as_examples(tmp_path: Path) -> None:
    bare = {k: v for k, v in query("mended").items() if k != "context"}
    pool = [{"id": f"p{i}", "input": f"What was mended {i} times?", "output": f"thing {i}"} for i in range(4)]
    store = workspace_of(tmp_path / "w", [bare], pool)
    backend = Scripted({("mended", 0): ("no", 0.2), ("mended", 1): ("yes", 0.6)})
    plan = CalibrationPlan(rounds=1, split="validation")
    settings = replace(SETTINGS, k=2)
    done = Calibration.prepare(LLMClient(store, backend, settings), queries_of(store, "validation"), plan).ask(Budget())
    (example,) = fine_tuning_set(store, "validation", SETTINGS).examples
    assert [m["role"] for m in example.messages] == ["system", *["user", "assistant"] * 3]
    (case,) = kept.stored_cases(store, done.run, "full")
    assert [(m["role"], m["content"]) for m in example.messages[:-1]] == list(case.rounds[1].messages)


def test_the_file_is_chat_jsonl_with_a_manifest(workspace: Workspace, tmp_path: Path) -> None:
    state(workspace)
    plan = ExportPlan(out=tmp_path / "tuning.jsonl", format="calibration", split="validation")
    manifest = export_calibration(workspace, plan, SETTINGS).written
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
        export_calibration(workspace, plan, SETTINGS)
    assert export_calibration(workspace, replace(plan, force=True), SETTINGS).written["files"] == manifest["files"]


def pool_of(path: Path) -> Workspace:
    """The queries as rows of the pool, calibrated."""
    rows = [query(name) for name in ANSWERS]
    store = workspace_of(path, [query("other")], rows)
    state(store, split="pool")
    return store


def test_a_row_pruned_since_is_not_learnt_and_a_corrected_one_is_learnt_as_corrected(tmp_path: Path) -> None:
    store = pool_of(tmp_path / "w")
    before = {e.id for e in fine_tuning_set(store, "pool", SETTINGS).examples}
    assert before == {"kept", "mended", "swapped"}
    decide(store, "prune", "demonstration", ["kept"], "wrong")
    relabel(store, {"never": "no"}, "the label was wrong")
    found = fine_tuning_set(store, "pool", SETTINGS)
    assert {e.id for e in found.examples} == {"mended", "swapped", "never"}
    assert (found.counts["pruned"], found.counts["kept_right"], found.counts["dropped"]) == (1, 1, 0)
    assert found.examples[-1].messages[-1]["content"] == "no"
    decide(store, "restore", "demonstration", ["kept"])
    assert fine_tuning_set(store, "pool", SETTINGS).counts["pruned"] == 0


@pytest.mark.parametrize("decision", ["prune", "relabel"])
def test_an_example_that_shows_a_row_pruned_or_corrected_since_is_left_out(tmp_path: Path, decision: str) -> None:
    asked = [{"id": name, "input": f"What is {name}?", "output": "yes"} for name in ("alpha", "beta")]
    pool = [
        {"id": f"{name}{i}", "input": f"What was {name} {i} times?", "output": f"thing {i}"}
        for name in ("alpha", "beta", "gamma", "delta")
        for i in range(2)
    ]
    store = workspace_of(tmp_path / "w", asked, pool)
    backend = Scripted({(name, i): ("yes", 0.5 + i / 10) for name in ("alpha", "beta") for i in range(2)})
    plan = CalibrationPlan(rounds=1, split="validation")
    client = LLMClient(store, backend, replace(SETTINGS, k=2))
    done = Calibration.prepare(client, queries_of(store, "validation"), plan).ask(Budget())
    assert isinstance(done, SetCalibration)
    assert [[d.id for d in q.documents] for q in done.queries] == [["alpha0", "alpha1"], ["beta0", "beta1"]]
    assert len(fine_tuning_set(store, "validation", SETTINGS).examples) == 2
    if decision == "prune":
        decide(store, "prune", "demonstration", ["beta1"])
    else:
        relabel(store, {"beta1": "another thing"})
    found = fine_tuning_set(store, "validation", SETTINGS)
    assert [e.id for e in found.examples] == ["alpha"]
    assert (found.counts["outdated"], found.counts["pruned"]) == (1, 0)
    decide(store, "prune", "source", ["pool"])
    with pytest.raises(UsageError, match="ended with a right answer and is in the pool as it was"):
        fine_tuning_set(store, "validation", SETTINGS)


def test_a_pool_on_which_nothing_was_decided_is_warned_of(tmp_path: Path) -> None:
    store = pool_of(tmp_path / "w")
    assert any(
        "was ever pruned, kept or corrected" in told for told in fine_tuning_set(store, "pool", SETTINGS).warnings
    )
    assert any("was ever pruned" in told for told in answer_set(store, "pool", SETTINGS).warnings)
    decide(store, "keep", "demonstration", ["kept"])
    assert not any("was ever pruned" in told for told in fine_tuning_set(store, "pool", SETTINGS).warnings)
    assert not answer_set(store, "pool", SETTINGS).warnings


@pytest.mark.parametrize(
    ("corrected", "kept_right", "warned"), [(49, 0, True), (50, 450, False), (50, 451, True), (100, 0, False)]
)
def test_a_set_that_nearly_only_keeps_is_warned_of(corrected: int, kept_right: int, warned: bool) -> None:
    examples = [TrainingConversation(str(i), i, (), i < corrected) for i in range(corrected + kept_right)]
    assert [f"{corrected:,} of" in told for told in few_corrections(examples)] == [True] * warned


def test_a_balanced_set_keeps_as_many_answers_as_it_corrects(tmp_path: Path) -> None:
    names = {f"kept{i}": ANSWERS["kept"] for i in range(6)} | {
        "mended": ANSWERS["mended"],
        "swapped": ANSWERS["swapped"],
    }
    store = workspace_of(tmp_path / "w", [query(name) for name in names])
    state(store, answers=names)
    whole = fine_tuning_set(store, "validation", SETTINGS)
    sets = [fine_tuning_set(store, "validation", replace(SETTINGS, seed=i), balance=True) for i in range(8)]
    for found in sets:
        assert [e.corrects for e in found.examples] == [False, False, True, True]
        assert found.counts == {**whole.counts, "left_out": 4}
        assert all(example in whole.examples for example in found.examples)
    assert len({tuple(e.id for e in found.examples) for found in sets}) > 1
    assert fine_tuning_set(store, "validation", SETTINGS, balance=True) == sets[SETTINGS.seed]
    only = workspace_of(tmp_path / "only", [query("kept")])
    state(only)
    with pytest.raises(UsageError, match="nothing to balance with"):
        fine_tuning_set(only, "validation", SETTINGS, balance=True)


@pytest.mark.parametrize("arm", LEARNT)
def test_a_set_from_an_arm_shows_what_its_rounds_showed(workspace: Workspace, arm: str) -> None:
    done = state(workspace, (arm,))
    examples = {e.id: e.messages for e in fine_tuning_set(workspace, "validation", SETTINGS, arm).examples}
    rounds = {
        name: case.rounds for name, case in zip(ANSWERS, kept.stored_cases(workspace, done.run, arm), strict=True)
    }
    for name, last in (("kept", 1), ("mended", 2)):
        assert [(m["role"], m["content"]) for m in examples[name][:-1]] == list(rounds[name][last].messages)
    assert examples["kept"][-1]["content"] == "yes"  # its own words
    said = examples["swapped"][1]["content"].split("Previous Generated Answer:\n")[1]
    # a certain wrong answer is substituted only if its score is shown
    assert said == ("Round 1: no\nAnswer:" if arm == "plain" else "Round 1: yes indeed (Uncertainty Score: 6)\nAnswer:")
    assert ("Document [1] (Uncertainty Score" in examples["swapped"][1]["content"]) == (arm == "full")


def test_arms_without_a_set_of_their_own_are_refused(workspace: Workspace) -> None:
    state(workspace, ("answers", "sampling"))
    for arm in ("sampling", "oracle", "nothing"):
        with pytest.raises(UsageError, match=f"no fine-tuning set is made from the arm '{arm}'"):
            fine_tuning_set(workspace, "validation", SETTINGS, arm)
    with pytest.raises(UsageError, match="calibrated yet with the arm 'plain'") as refused:
        fine_tuning_set(workspace, "validation", SETTINGS, "plain")
    assert refused.value.fix == "icl-curate calibrate --split validation --arms plain"
    with workspace.write() as con:  # as runs were stored before their documents were
        con.execute("DELETE FROM calibration_documents")
    with pytest.raises(UsageError, match="did not keep its documents"):
        fine_tuning_set(workspace, "validation", SETTINGS, "answers")


@pytest.mark.parametrize("arm", ["full", "plain"])
def test_the_manifest_says_what_the_scores_rest_on(tmp_path: Path, arm: str) -> None:
    store = pool_of(tmp_path / "w")
    done = state(store, (arm,), "pool")
    decide(store, "prune", "demonstration", ["kept"], "wrong")
    plan = ExportPlan(out=tmp_path / "tuning.jsonl", format="calibration", split="pool")
    manifest = export_calibration(store, plan, SETTINGS, arm).written
    of_rows = export(store, ExportPlan(out=tmp_path / "rows.jsonl")).written
    assert manifest is not None
    assert of_rows is not None
    assert set(of_rows) - {"columns"} < set(manifest)  # columns: of rows with further fields
    for name in ("decisions", "indexed_files", "workspace", "template"):
        assert manifest[name] == of_rows[name]
    assert [entry["targets"] for entry in manifest["decisions"]] == [["kept"]]
    assert [Path(each["path"]).name for each in manifest["indexed_files"]] == ["pool.jsonl", "validation.jsonl"]
    assert manifest["files"] == {"tuning.jsonl": hashlib.sha256(plan.out.read_bytes()).hexdigest()}
    assert (manifest["run"], manifest["llm"], manifest["arm"]) == (done.run, "scripted", arm)
    assert (manifest["estimator"], manifest["means"]) == (done.estimator, done.means)
    assert manifest["calibration"]["rounds"] == 2
    assert manifest["counts"]["pruned"] == 1
    assert manifest["counts"]["exported"] == {"pool": 2}
    assert manifest["counts"]["active"] == 3
    assert [(each["source"], each["exported"]) for each in manifest["sources"]] == [("pool", 2)]
    assert manifest["ids"] == ["mended", "swapped"]
    assert any("2 of 2 examples correct" in told for told in manifest["warnings"])


def test_what_would_be_exported_is_told_beforehand(workspace: Workspace, tmp_path: Path) -> None:
    state(workspace)
    plan = ExportPlan(out=tmp_path / "tuning.jsonl", format="calibration", split="validation", dry_run=True)
    for report in (export_calibration(workspace, replace(plan, dry_run=dry), SETTINGS) for dry in (True, False)):
        assert {name: report.counts[name] for name in ("kept_right", "corrected", "dropped")} == {
            "kept_right": 1,
            "corrected": 2,
            "dropped": 1,
        }
        assert report.warnings == tuple(report.as_json()["warnings"]) != ()
        assert ExportReport.from_json(json.loads(json.dumps(report.as_json()))).as_json() == report.as_json()
    plan = replace(plan, out=tmp_path / "another.jsonl")
    for filtered in (replace(plan, sources=("pool",)), replace(plan, deduplicate=True)):
        with pytest.raises(UsageError, match="calibrated answers are not filtered"):
            export_calibration(workspace, filtered, SETTINGS)


LONG = {"context": "A few words more.\n\nB."}


def test_documents_are_cut_alike_in_rounds_and_sets(tmp_path: Path) -> None:
    store = workspace_of(tmp_path / "w", [query(name) | LONG for name in ANSWERS])
    cut = replace(SETTINGS, document_tokens=2)
    done = state(store, settings=cut)
    assert [[d.text for d in q.documents] for q in done.queries] == [["A few", "B."]] * 4
    found = fine_tuning_set(store, "validation", SETTINGS)  # not set: as in the rounds
    assert found == fine_tuning_set(store, "validation", cut)
    assert found.document_tokens == 2
    assert all(
        "]: A few\n\n" in e.messages[1]["content"].replace(" (Uncertainty Score: 100)", "") for e in found.examples
    )
    with pytest.raises(UsageError, match="were cut to 2 tokens, not cut to 3 tokens") as refused:
        fine_tuning_set(store, "validation", replace(SETTINGS, document_tokens=3))
    assert "calibrate --split validation --document-tokens 3" in refused.value.fix
    plain = answer_set(store, "validation", cut, count_tokens=Scripted({}).count_tokens)
    assert {e.messages[1]["content"].split("\n\n")[0] for e in plain.examples} == {"Document [1]: A few"}
    plan = ExportPlan(out=tmp_path / "tuning.jsonl", format="calibration", split="validation")
    assert (export_calibration(store, plan, SETTINGS).written or {})["calibration"]["document_tokens"] == 2


def test_runs_from_before_documents_were_cut_had_whole_ones(workspace: Workspace) -> None:
    done = state(workspace)
    with workspace.write() as con:
        told = runs.settings(workspace, done.run)
        old = {key: value for key, value in told.items() if key != "document_tokens"}
        con.execute("UPDATE runs SET settings = ?", [json.dumps(old)])
    assert fine_tuning_set(workspace, "validation", SETTINGS).document_tokens is None
    with pytest.raises(UsageError, match="were whole, not cut to 200 tokens"):
        fine_tuning_set(workspace, "validation", replace(SETTINGS, document_tokens=200))


def test_a_query_is_not_scored_by_the_mean_of_documents_cut_otherwise(tmp_path: Path) -> None:
    store = workspace_of(tmp_path / "w", [query("kept") | LONG])
    state(store, settings=replace(SETTINGS, document_tokens=2))
    for tokens, known in ((2, True), (None, False), (3, False)):
        backend = Scripted(script("kept", *ANSWERS["kept"]))
        client = LLMClient(store, backend, replace(SETTINGS, document_tokens=tokens))
        done = Calibration.prepare(client, queries_of(store, "validation"), CalibrationPlan(rounds=1)).ask(Budget())
        assert isinstance(done, QueryCalibration)
        assert done.mean_known is known


def test_the_pool_can_be_walked_for_training(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="no pool queries have been calibrated"):
        fine_tuning_set(workspace, "pool", SETTINGS)
    assert len(queries_of(workspace, "pool")) == 2
