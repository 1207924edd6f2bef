"""The walk through the plan of `curate`, without a screen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from factories.gullible_world import SETTINGS, Gullible, make_gullible_world, make_held_world
from factories.reviewing import HOSTILE, is_safe
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.curate.curation import Curation, CurationPlan
from icl_curate.engine.curate.plan import CurationDryRun
from icl_curate.engine.curate.state import answer, kept
from icl_curate.engine.jobs.folder import Job
from icl_curate.engine.jobs.kinds import JobCommand
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.cost import DryRun
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.overview import CURATION
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.render.costs import whole_rows
from icl_curate.tui.walk import COLUMNS, FoundWalk, WalkModel, read_walk, step_line, step_told, walk_told

OWN = replace(SETTINGS, llm="gullible")


def walk(workspace: Workspace, settings: Settings = OWN) -> WalkModel:
    model = WalkModel()
    model.take(read_walk(workspace, settings, None, None))
    return model


def look(model: WalkModel, workspace: Workspace) -> None:
    model.take(read_walk(workspace, OWN, model.found, model.watched))


def signs(model: WalkModel) -> str:
    return " ".join(step.sign for step in model.steps())


def job(number: int, folder: Path, state: str) -> Job:
    return Job(number, folder, JobCommand.of(["curate", "--yes"]), "", state, 0.0)  # type: ignore[arg-type]


def planned(workspace: Workspace) -> CurationDryRun:
    work = Curation.prepare(LLMClient(workspace, Gullible(), SETTINGS), CurationPlan(max_calls=600))
    return CurationDryRun(tuple(work.steps), DryRun(work.cost(), ""))


def test_a_budget_comes_before_the_plan_and_the_plan_before_a_step(tmp_path: Path) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    model = walk(workspace)
    assert (model.phase, model.budget, model.steps()) == ("budget", "1000", [])
    assert model.words() == ["curate", "--max-calls", "1000", "--next", "--hold", "--yes"]
    assert model.type_in(" 1,600 ", "") and model.words()[1:3] == ["--max-calls", "1600"]
    assert model.type_in("$2.50", "") and model.words()[1:3] == ["--max-cost", "2.50"]
    for wrong in ("", "0", "-5", "$", "$0", "many", "1 --llm x", "１", "[/b]\x1b"):
        model.type_in(wrong, "")
        with pytest.raises(UsageError, match="is no budget"):
            model.words()
    model.type_in("600", "")
    model.take_plan(planned(workspace), model.typed)
    assert model.phase == "plan" and signs(model).startswith("next later") and len(model.steps()) > 4
    assert all(is_safe(str(walk_told(model, UsageError(text, text)))) for text in HOSTILE[:6])
    refused = UsageError("refused " * 100, "mend " * 100 + "and go on")
    assert walk_told(model, refused).plain.split("\n")[1] == refused.fix
    model.type_in("700", "")
    assert model.phase == "budget" and model.steps() == []


def test_which_answers_are_right_is_said_in_options_of_the_group_alone(tmp_path: Path) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    model = walk(workspace)
    model.type_in("600", "--metric json-f1 --least 0.8")
    assert model.words()[:7] == ["curate", "--max-calls", "600", "--metric", "json-f1", "--least", "0.8"]
    model.take_plan(planned(workspace), model.typed)
    assert model.phase == "plan" and model.type_in("600", "--metric f1") and model.phase == "budget"
    for wrong in ("--metric", "f1", "--llm openai:x", "--metric f1 --yes", "--metric 'f1"):
        model.type_in("600", wrong)
        with pytest.raises(UsageError):
            model.words()


@pytest.mark.parametrize(
    ("graded", "typed"),
    [
        ({"metric": "json-f1", "least": 0.8, "binary": False}, "--metric json-f1 --least 0.8"),
        ({"metric": "json-f1", "least": 0.5, "binary": False, "why": "it fits"}, ""),
        (
            {"metric": "accuracy", "least": 1.0, "binary": True, "read": "json:label"},
            "--metric accuracy --read json:label",
        ),
        ({"metric": "os:system", "least": 0.5, "binary": False}, ""),
        ({"metric": "accuracy", "least": 1.0, "binary": True, "read": "regex:(a+)+$"}, ""),
        ({"metric": "judge", "least": 1.0, "binary": True, "judge": "openai:dear"}, ""),
        ([], ""),
    ],
)
def test_an_unfinished_run_goes_on_with_its_grading_unless_that_names_what_only_the_user_may(
    tmp_path: Path, graded: object, typed: str
) -> None:
    workspace = make_held_world(tmp_path / "w")
    file = workspace.path / CURATION
    data = json.loads(file.read_text())
    data["key"]["graded_by"] = graded
    file.write_text(json.dumps(data))
    model = walk(workspace)
    assert model.grading == typed
    answer(workspace, OWN, accept=False)
    look(model, workspace)
    assert model.state is not None and " ".join(model.words()).startswith(f"curate --max-calls 600 {typed}".strip())
    model.type_in("600", "--metric rouge-l")
    assert model.state is None and model.other_run() == "another grading begins anew"


def test_a_pruning_that_waits_comes_first_and_shows_what_it_would_do(tmp_path: Path) -> None:
    workspace = make_held_world(tmp_path / "w")
    model = walk(workspace)
    assert (model.phase, model.budget) == ("held", "600")
    assert "held" in signs(model) and signs(model).startswith("done ") and "later" in signs(model)
    found = model.found
    assert found is not None and found.effect is not None and model.held is not None
    assert (found.effect.active_before, found.effect.active_after) == (120, 60)
    assert found.effect.effects.sources_gone == ("bad",)
    shown = str(walk_told(model))
    assert "active: 120 → 60" in shown and "sources gone: bad" in shown and "gain +" in shown
    with workspace.read() as con:
        others = [name for (name,) in con.execute("SELECT id FROM active WHERE source <> 'bad' LIMIT 7").fetchall()]
    decide(workspace, "prune", "demonstration", others)  # beside the walk
    look(model, workspace)
    assert "active: 113 → 53" in str(walk_told(model))
    with workspace.write() as con:
        con.execute("UPDATE demonstrations SET retired_at = now() WHERE source = 'bad'")
    again = walk(workspace)
    assert again.phase == "held" and "reject it" in str(walk_told(again))


@pytest.mark.parametrize("accept", [True, False])
def test_after_the_answer_the_walk_goes_on_to_its_end(tmp_path: Path, accept: bool) -> None:
    workspace = make_held_world(tmp_path / "w")
    model = walk(workspace)
    answer(workspace, OWN, accept)
    model.walked = True
    look(model, workspace)
    assert model.phase == "budget" and model.state is not None
    assert ("rejected" in signs(model)) is not accept and signs(model).count("next") == 1
    assert f"{600 - model.state.calls:,} left" in str(walk_told(model))
    assert model.words()[:3] == ["curate", "--max-calls", "600"] and "--restart" not in model.words()
    while (state := kept(workspace)) is not None:
        plan = CurationPlan(max_calls=600, hold=True)
        Curation.prepare(LLMClient(workspace, Gullible(), SETTINGS), plan).ask(Budget(600))
        if (state := kept(workspace)) is not None and state.held:
            answer(workspace, OWN, False)
    look(model, workspace)
    assert model.phase == "done" and set(signs(model).split()) <= {"done", "rejected"}
    assert ("rises" in str(walk_told(model))) is accept
    model.begin_anew()
    assert model.phase == "budget" and model.words()[-1] == "--restart"


def test_a_job_is_shown_and_its_end_is_told_once(tmp_path: Path) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    model = walk(workspace)
    model.anew = True
    assert model.take(FoundWalk(OWN, job=job(7, tmp_path, "running"))) is None
    assert model.phase == "running" and model.watched == 7 and not model.anew and "job 7" in str(walk_told(model))
    ended = FoundWalk(OWN, job=job(7, tmp_path, "failed"))
    assert model.take(ended) is ended.job and model.take(ended) is None
    assert model.phase == "budget"


def test_another_run_is_not_gone_on_with_in_silence(tmp_path: Path) -> None:
    workspace = make_held_world(tmp_path / "w")
    answer(workspace, OWN, accept=False)
    model = walk(workspace, replace(OWN, llm="other"))
    assert model.state is None and "gullible is left" in model.other_run()
    model = walk(workspace, replace(OWN, method="dense", k=5))
    assert model.state is not None and model.other_run() == ""
    assert "--method bm25 --shots 3 --noise 1.645" in " ".join(model.words())
    model.type_in("700", "")
    assert model.state is None and "600 goes on" in model.other_run() and "--method" not in model.words()


def test_a_foreign_state_does_no_harm(tmp_path: Path) -> None:
    workspace = make_held_world(tmp_path / "w")
    file = workspace.path / CURATION
    data = json.loads(file.read_text())
    data["pending"]["step"]["found"] = data["pending"]["reason"] = HOSTILE[1]
    data["steps"][0]["found"] = HOSTILE[0]
    data["key"] |= {"method": "--llm=evil", "k": "[/b]", "order": "\x1b", "llm": HOSTILE[1]}
    file.write_text(json.dumps(data))
    model = walk(workspace)
    lines = [step_line(step) for step in model.steps()]
    texts = [str(cell) for line in lines for cell in line.cells] + [str(step_told(step)) for step in model.steps()]
    assert is_safe("".join(texts) + str(walk_told(model)) + model.budget)
    data["pending"] = None
    data["key"]["llm"] = "gullible"
    file.write_text(json.dumps(data))
    assert walk(workspace).words() == ["curate", "--max-calls", "600", "--noise", "1.645", "--next", "--hold", "--yes"]
    for odd in ("[]", "{", '{"key": 1}', "null", '{"key": {}, "since": "x", "steps": [1]}'):
        file.write_text(odd)
        assert walk(workspace).phase == "budget"


def test_the_calls_said_of_the_next_step_are_a_bound_and_those_of_later_ones_are_not_said_to_be(tmp_path: Path) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    model, more = walk(workspace), []
    model.type_in("600", "")
    model.take_plan(planned(workspace), model.typed)
    while True:
        following, *later = model.steps()[len(more) :]
        assert all(step_line(step).cells[1] in ("none", f"about {step.calls:,}") for step in later)
        assert step_line(following).cells[1] in ("none", f"≤ {following.calls:,}")
        client = LLMClient(workspace, Gullible(), SETTINGS)
        done = Curation.prepare(client, CurationPlan(max_calls=600, one_step=True)).ask(Budget(600))
        assert done.steps[-1].calls <= following.calls, done.steps[-1].step
        more.append(done.steps[-1].calls)
        if done.following is None:
            break
        look(model, workspace)
    assert sum(more) <= 600
    first = {step.step: step.calls for step in planned(workspace).steps}
    assert any(step.calls > first[step.step] for step in done.steps)  # what earlier steps left


def test_a_plan_of_known_answers_says_what_its_calls_take(tmp_path: Path) -> None:
    """The served prompts are cached after a race; the calls to come are others."""
    workspace = make_gullible_world(tmp_path / "w")
    before = planned(workspace).cost
    Curation.prepare(LLMClient(workspace, Gullible(), SETTINGS), CurationPlan(max_calls=600)).ask(Budget(600))
    after = planned(workspace).cost
    assert after.plan.tokens_in[0] > 0.9 * before.plan.tokens_in[0] > 0
    rows = dict(whole_rows(after))
    assert rows["calls"] == "at most 600" and "to ask" not in rows and not rows["tokens in"].startswith("0 ")


def test_the_column_of_calls_holds_what_is_said_of_them() -> None:
    assert next(column.width for column in COLUMNS if column.name == "calls") >= len("about 10,000")


def test_after_a_step_the_first_race_keeps_its_expected_gain(tmp_path: Path) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    model = walk(workspace)
    model.type_in("600", "")
    model.take_plan(planned(workspace), model.typed)
    expected = {step.what: step.gain for step in model.steps()}
    client = LLMClient(workspace, Gullible(), SETTINGS)
    Curation.prepare(client, CurationPlan(max_calls=600, one_step=True)).ask(Budget(600))
    look(model, workspace)
    done, race, *_ = model.steps()
    assert (done.sign, race.sign) == ("done", "next")
    assert race.gain == expected[race.what] and race.gain is not None
    races = [step for step in model.steps()[1:] if "race" in step.what]
    assert len({step.calls for step in races}) == 3 and all(f"-calls {step.calls} " in step.told for step in races)
    assert [step.what for step in model.steps()][-1].startswith("race methods: ")
    assert "by hand" not in step_told(replace(race, told="")).plain
