"""`curate`: its plan keeps to the budget, its decisions are confirmed, and a run that was stopped goes on."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from factories.commands import Run
from factories.gullible_world import PRICED, SETTINGS, Gullible, make_gullible_world, make_held_world, whole_curation
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.base.errors import Cancelled, LockedError, UsageError
from icl_curate.engine.base.progress import CancelToken, Event, Monitor
from icl_curate.engine.curate import curation, state, tune
from icl_curate.engine.curate.curation import Curation, CurationPlan
from icl_curate.engine.curate.plan import KIND, CurationDryRun, CurationReport, StepDone, most_candidates, trials_of
from icl_curate.engine.curate.results import TuneReport
from icl_curate.engine.curate.resume import budget_of
from icl_curate.engine.curate.state import Progress, answer, planned
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.jobs.kinds import JobCommand
from icl_curate.engine.llm.budget import Budget, Price
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.cost import DryRun
from icl_curate.engine.llm.types import Answer, Failure, Request, Result
from icl_curate.engine.report.gather import corrections
from icl_curate.engine.select.lock import FILE
from icl_curate.engine.select.selector import Selector
from icl_curate.engine.store import runs
from icl_curate.engine.store.calls import Spent
from icl_curate.engine.store.decisions import decide, history, relabel, settled_rows, undo
from icl_curate.engine.store.demonstrations import active_rows, active_sources, fetch
from icl_curate.engine.store.outputs import relabelled
from icl_curate.engine.store.overview import CURATION
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.versions import save_version
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials.sources import SourcePlan, SourceTraining
from icl_curate.render.curate import brief_curation, curation_verdict, held_lines, show_curation, show_curation_plan
from icl_curate.render.jobs import dry_run_rows


@pytest.fixture
def world(tmp_path: Path) -> Workspace:
    return make_gullible_world(tmp_path / "w")


@pytest.fixture
def held(tmp_path: Path) -> Workspace:
    return make_held_world(tmp_path / "w")


def _curation(
    workspace: Workspace, calls: int | None, llm: Gullible | None = None, settings: Settings = SETTINGS, **plan: Any
) -> Curation:
    backend = llm or Gullible()
    client = LLMClient(workspace, backend, settings, Monitor(cancel=backend.token or CancelToken()))
    return Curation.prepare(client, CurationPlan(max_calls=calls, **plan))


def _accuracy(workspace: Workspace) -> float:
    plan = EvaluationPlan(methods=("bm25",), split="validation")
    return Evaluation.prepare(LLMClient(workspace, Gullible(), SETTINGS), plan).ask(Budget()).methods["bm25"].accuracy


@given(st.integers(0, 20_000), st.integers(1, 500), st.booleans(), st.booleans())
def test_no_plan_takes_more_than_there_is(calls: int, queries: int, free: bool, single: bool) -> None:
    steps = planned(Progress({}, "", limit=calls, free=free, single=single), 0.25)
    assert sum(step.calls for step in steps) == calls or steps[-1].step == "rank"
    assert sum(step.calls for step in steps) <= calls and min(step.calls for step in steps) >= 0
    asked, depth = trials_of(calls, queries)
    assert asked * depth <= calls and asked <= queries and depth >= 2
    assert most_candidates(calls) >= 2


def test_what_hurts_is_pruned_within_the_budget_and_the_accuracy_rises(world: Workspace) -> None:
    before, llm = _accuracy(world), Gullible()
    done = _curation(world, 600, llm).ask(Budget(600))
    assert done.calls == len(llm.asked) <= 600 and done.left == 600 - done.calls
    assert (done.before, done.pruned, done.following) == (before, ("bad",), None)
    assert done.after is not None and done.after > before and _accuracy(world) > before
    assert {source.split("-")[0] for source in active_sources(world)[1]} == {"good"}
    confirmed = next(step for step in done.steps if step.batch)
    assert confirmed.gain is not None and confirmed.low is not None and confirmed.low > 0 and confirmed.batch
    assert sum(step.calls for step in done.steps) == done.calls
    (kept,) = runs.runs(world, KIND)
    assert CurationReport.from_json(kept.summary) == done == CurationReport.from_json(done.as_json())
    assert not (world.path / CURATION).exists()
    locked = Selector.locked(world)
    assert (locked.settings.method, done.version) == (done.served, f"curate-{done.run}")
    for _ in [entry for entry in history(world) if entry.action == "prune"]:
        undo(world)
    assert _accuracy(world) == before


def test_how_much_of_the_budget_is_spent_is_told_with_the_answers(world: Workspace) -> None:
    told: list[Event] = []
    curation = _curation(world, 300)
    done = replace(curation, llm=replace(curation.llm, monitor=Monitor(told.append))).ask(Budget(300))
    spent = [event.done for event in told if event.task == "curate" and event.total == 300]
    assert spent == sorted(spent) and len({*spent}) > 2 and spent[-1] == done.calls
    shown = [event for event in told if event.task == "curate"]
    assert all(event.total == 300 for event in shown[1:]), "a bar would jump back at a step"
    assert sum(event.note.startswith("step ") for event in shown) == len(done.steps)


def test_a_pool_without_faults_is_left_as_it_is(world: Workspace) -> None:
    with world.write() as con:
        con.execute("UPDATE demonstrations SET output = 'yes ' || id WHERE output = 'wrong'")
    done = _curation(world, 600).ask(Budget(600))
    assert (done.pruned, done.pruned_rows, history(world)) == ((), 0, [])
    assert done.before == done.after == 1.0


def test_of_the_races_of_a_run_the_first_alone_has_a_name(world: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is better, and the evidence prefers a pruning of which no answer is part, so both races could name it."""
    with world.write() as con:
        con.execute("UPDATE demonstrations SET output = 'yes ' || id WHERE output = 'wrong'")
    posterior, gathered, raced, named = dict.fromkeys(range(1, 120, 2), 0.95), tune.gather, tune.race, list[int]()

    def known(*given: Any, **more: Any) -> Any:
        return replace(gathered(*given, **more), posterior=posterior, answered=False)

    def race(*given: Any, **more: Any) -> Any:
        named.append(more["named"])
        return raced(*given, **more)

    monkeypatch.setattr(tune, "gather", known)
    monkeypatch.setattr(tune, "race", race)
    _curation(world, 600).ask(Budget(600))
    assert len(named) > 1 and named[0] > 0 and not any(named[1:])


@pytest.mark.parametrize(("stop_after", "at_once"), [(5, 16), (150, 64), (290, 16)])
def test_a_run_that_was_stopped_goes_on_and_pays_nothing_twice(world: Workspace, stop_after: int, at_once: int) -> None:
    first = Gullible(CancelToken(), stop_after)
    first.max_in_flight = at_once
    with pytest.raises(Cancelled):
        _curation(world, 600, first).ask(Budget(600))
    second = Gullible()
    done = _curation(world, 600, second).ask(Budget(600))
    asked = Counter([*first.asked, *second.asked])
    assert max(asked.values()) == 1 and done.calls == asked.total() <= 600
    assert Counter(step.step for step in done.steps)["check"] == 1
    assert done.pruned == ("bad",) and len([e for e in history(world) if e.action == "prune"]) == 1
    steps = [[(each.step, each.calls, each.gain) for each in run.steps] for run in (done, whole_curation())]
    assert steps[0] == steps[1], "where it was stopped decides nothing"


class _Killed(BaseException):
    """What no handler of errors catches."""


class _Losing(Gullible):
    """Loses every third call."""

    def _answer(self, request: Request) -> Result:
        answer = super()._answer(request)
        return Failure("malformed", "lost") if len(self.asked) % 3 == 0 else answer


class _Deaf(Gullible):
    """Never answers a third of the prompts, in whatever order they come and however often."""

    def _answer(self, request: Request) -> Result:
        answer = super()._answer(request)
        return Failure("malformed", "lost") if crc32(request.prompt.text.encode()) % 3 == 0 else answer


class _Wordless(Gullible):
    """Gives no answer to every other prompt, and is paid for it."""

    def _answer(self, request: Request) -> Result:
        answer = super()._answer(request)
        return answer if len(self.asked) % 2 else Failure("refusal", "refused")


def test_calls_without_an_answer_count_when_a_run_goes_on_and_its_plan_is_of_what_is_left(world: Workspace) -> None:
    first, budget = _Wordless(CancelToken(), 100), Budget(600)
    with pytest.raises(Cancelled):
        _curation(world, 600, first).ask(budget)
    begun, second = _curation(world, 600), _Wordless()
    assert begun.begun and begun.begun.spent == budget.calls >= 100
    assert begun.cost().to_ask == sum(step.calls for step in begun.steps) == 600 - budget.calls
    done = _curation(world, 600, second).ask(Budget(600))
    assert len(first.asked) + len(second.asked) <= 600 and done.calls == len(first.asked) + len(second.asked)


def test_calls_that_probed_the_llm_are_counted_though_the_run_was_killed_before_its_first_step(
    world: Workspace,
) -> None:
    token, budget = CancelToken(), Budget(600)
    begun = _curation(world, 600, Gullible(token))
    budget.spend(4, 0, 0)
    token.cancel()
    with pytest.raises(Cancelled):
        begun.ask(budget)
    stopped = state.kept(world)
    assert stopped is not None and stopped.probed == 4
    state.keep(world, replace(stopped, probed=-1000, spent=-1000))  # a stranger's
    token, forged = CancelToken(), Budget(600)
    resumed = _curation(world, 600, Gullible(token))
    token.cancel()
    with pytest.raises(Cancelled):
        resumed.ask(forged)
    assert forged.calls == 0
    state.keep(world, stopped)
    done = _curation(world, 600).ask(Budget(600))
    assert done.steps[0].calls == 4 and "4 calls to probe the LLM" in done.steps[0].found
    assert sum(step.calls for step in done.steps) == done.calls <= 600


def test_what_other_commands_ask_between_is_not_the_runs(world: Workspace) -> None:
    """They may ask the same LLM, and even the prompts that the run would ask next."""
    first = Gullible(CancelToken(), 20)
    with pytest.raises(Cancelled):
        _curation(world, 600, first).ask(Budget(600))
    between = Gullible()
    client = LLMClient(world, between, SETTINGS)
    Evaluation.prepare(client, EvaluationPlan(methods=("bm25", "random", "zero"), split="validation")).ask(Budget())
    last = Gullible()
    curation = _curation(world, 600, last)
    assert curation.begun and curation.steps[0].step == "confirm" and curation.cost().to_ask == 600 - len(first.asked)
    done = curation.ask(Budget(600))
    assert len(between.asked) > 100 and done.calls == len(first.asked) + len(last.asked)
    assert sum(step.calls for step in done.steps) == done.calls and done.pruned == ("bad",)


def test_a_run_of_an_earlier_release_and_a_strangers_count_what_is_known(world: Workspace) -> None:
    with pytest.raises(Cancelled):
        _curation(world, 600, Gullible(CancelToken(), 60)).ask(Budget(600))
    stopped = state.kept(world)
    assert stopped is not None
    before = state.spent_in_all(world, stopped)
    assert before.calls >= 60 and before.tokens_in > before.calls
    state.keep(world, replace(stopped, runs=(*stopped.runs, -1, 10**30)))  # such numbers are no run's
    assert state.spent_in_all(world, stopped) == before and _curation(world, 600).cost().to_ask == 600 - before.calls
    with world.write() as con:
        con.execute("UPDATE llm_calls SET run = NULL")
    assert state.spent_in_all(world, replace(stopped, runs=())) == before


def test_a_judges_answers_are_charged_at_its_own_price(world: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = {"gullible": Spent(10, 1_000_000, 0), "openai:judge at http://h": Spent(5, 1_000_000, 0)}
    monkeypatch.setattr(curation, "spent_by", lambda *_: spent)
    judged = replace(PRICED, metric="judge", judge_llm="openai:judge", judge_price_in=50.0, judge_price_out=0.0)
    budget = Budget(600, price=Price(1.0, 1.0))
    work = _curation(world, 600, settings=PRICED, one_step=True)
    work = replace(work, llm=replace(work.llm, settings=judged))
    monkeypatch.setattr(Curation, "_carry_out", lambda *_: None)
    work.ask(budget)
    assert (budget.calls, budget.cost) == (15, pytest.approx(51.0))


class _Judge(Gullible):
    """Calls every answer right, at $10 for a million tokens."""

    spec = "judge"

    def _answer(self, request: Request) -> Result:
        self.asked.append(request.prompt.text)
        return Answer(request.prompt.choices[0], tokens_in=self.count_tokens(request.prompt), tokens_out=1)


def test_a_limit_of_money_and_the_price_of_a_plan_count_the_judge(world: Workspace) -> None:
    """The LLM that answers is free."""
    free = replace(PRICED, price_in=0.0, price_out=0.0, metric="judge", judge_llm="judge")
    judge, limit = _Judge(), 0.05
    at_judge = LLMClient(world, judge, replace(PRICED, price_in=10.0, price_out=10.0, max_tokens=1))
    client = LLMClient(world, Gullible(), free, judge=at_judge)
    work = Curation.prepare(client, CurationPlan(max_cost=limit))
    planned = work.cost().cost
    assert 0 < work.calls < 1_000 and planned is not None and 0.9 * limit < planned[1] <= limit
    budget = Budget(None, limit, Price(0.0, 0.0))
    done = work.ask(budget)
    spent = 1e-5 * sum(len(text.split()) + 1 for text in judge.asked)
    assert judge.asked and done.calls > len(judge.asked) and budget.cost == pytest.approx(spent)
    assert spent <= limit


def test_evidence_on_rows_leaves_calls_for_its_judge(world: Workspace) -> None:
    with world.write() as con:
        con.execute("UPDATE demonstrations SET source = 'one'")
    judged = replace(SETTINGS, metric="judge", judge_llm="judge")
    client = LLMClient(world, Gullible(), judged, judge=LLMClient(world, _Judge(), SETTINGS))
    work = Curation.prepare(client, CurationPlan(max_calls=300))
    planned = next(step for step in work.steps if step.step == "ask")
    asked = next(step for step in work.ask(Budget(300)).steps if step.step == "ask")
    assert f"{planned.calls // 2} rows asked" in asked.found and asked.calls <= planned.calls
    assert f"--limit {planned.calls // 2} " in planned.command


def test_the_rest_of_a_plan_races_the_ranker_that_it_trains(world: Workspace) -> None:
    with world.write() as con:
        con.execute("UPDATE demonstrations SET options = ['yes', 'wrong'] WHERE split <> 'pool'")
        con.execute("UPDATE demonstrations SET output = 'yes', options = ['yes', 'wrong'] WHERE output <> 'wrong'")
        con.execute("UPDATE demonstrations SET options = ['yes', 'wrong'] WHERE output = 'wrong'")
    _curation(world, 600, one_step=True).ask(Budget(600))
    work = _curation(world, 600)
    assert work.begun and "rank" in [step.step for step in work.steps]
    assert ",ranker " in work.steps[-1].command and "ranker" in work.steps[-1].what


def test_two_do_not_curate_a_workspace_at_once(held: Workspace) -> None:
    curation = _curation(held, 600, anew=True)
    with state.alone(held):
        with pytest.raises(LockedError, match=rf"^PID {os.getpid()}\b.* is curating this workspace"):
            curation.ask(Budget(600))
        with pytest.raises(LockedError):
            answer(held, SETTINGS, accept=True)
    assert answer(held, SETTINGS, accept=True).pruned == ("bad",)


@pytest.mark.parametrize("calls", [100, 160, 250, 400, 1000])
def test_a_plan_has_the_steps_that_a_run_carries_out(world: Workspace, calls: int) -> None:
    curation = _curation(world, calls)
    steps = [step.step for step in curation.steps]
    done = [step.step for step in curation.ask(Budget(calls)).steps]
    assert {*done} == {*steps} and done[:2] == steps[:2] and done[-1] == steps[-1]


@pytest.mark.parametrize(("expected", "raced"), [(0.0, "prunings of sources"), (0.1, "what checks suggest")])
def test_a_plan_says_whether_checks_suggest_anything(expected: float, raced: str) -> None:
    assert planned(Progress({}, "", limit=400, free=True), expected)[1].what == f"race {raced}, carry out the best"


def test_a_plan_names_what_can_be_raced_and_trained(world: Workspace) -> None:
    *_, choose = _curation(world, 600).steps
    assert choose.what == "race methods: bm25, dense, dpp" and "-m bm25,dense,dpp " in choose.command
    assert "--split validation" in choose.command and f"--max-calls {choose.calls} " in choose.command
    with world.write() as con:  # the answers of free text are to each row's own input: no ranker learns from them
        con.execute("UPDATE demonstrations SET source = 'one'")
    curation = _curation(world, 600)
    assert "rank" not in [step.step for step in curation.steps]
    assert "rank" not in [step.step for step in curation.ask(Budget(600)).steps]


@pytest.mark.parametrize("decided", [False, True])
def test_a_kill_beside_the_decision_makes_it_once(
    world: Workspace, decided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = state.revise

    def dies(*what: Any) -> None:
        if decided:
            decide(*what)
        raise _Killed

    with monkeypatch.context() as patch, pytest.raises(_Killed):
        patch.setattr(state, "revise", dies)
        _curation(world, 600).ask(Budget(600))
    llm = Gullible()
    done = _curation(world, 600, llm).ask(Budget(600))
    assert len([entry for entry in history(world) if entry.action == "prune"]) == 1
    assert (done.pruned, done.before is not None and done.after is not None and done.after > done.before) == (
        ("bad",), True
    )  # fmt: skip
    confirmed = next(step for step in done.steps if step.step == "confirm")
    assert confirmed.calls > 0 and confirmed.batch == 1 and sum(step.calls for step in done.steps) == done.calls


def test_step_by_step_it_does_what_it_does_at_once(world: Workspace) -> None:
    whole, seen = whole_curation(), 0
    while True:
        done = _curation(world, 600, one_step=True).ask(Budget(600))
        seen += 1
        assert len(done.steps) == seen
        if done.following is None:
            break
        assert (world.path / CURATION).exists()
    assert (done.steps, done.before, done.after, done.pruned) == (whole.steps, whole.before, whole.after, whole.pruned)


@pytest.mark.parametrize("options", [False, True])
def test_a_pool_of_one_source_is_curated_by_its_rows(world: Workspace, options: bool) -> None:
    with world.write() as con:
        con.execute("UPDATE demonstrations SET source = 'one'")
        if options:
            con.execute("UPDATE demonstrations SET options = ['yes', 'wrong']")
    done = _curation(world, 600).ask(Budget(600))
    asked = next(step for step in done.steps if step.step == "ask")
    assert asked.calls > 0 and "rows asked" in asked.found


def test_a_source_of_which_no_row_is_near_a_query_does_not_end_the_run(world: Workspace) -> None:
    """There is nothing to compare the other source with: single rows are asked."""
    with world.write() as con:
        con.execute("UPDATE demonstrations SET options = ['yes', 'wrong']")
    plan = SourcePlan(depth=6, limit=20)
    near = SourceTraining.prepare(LLMClient(world, Gullible(), SETTINGS), plan).sources
    far = next(row for row in active_rows(world).tolist() if row not in near)
    with world.write() as con:
        con.execute("UPDATE demonstrations SET source = if(row = ?, 'other', 'main')", [far])
    done = _curation(world, 600).ask(Budget(600))
    asked = next(step for step in done.steps if step.step == "ask")
    assert asked.calls > 0 and "rows asked" in asked.found and done.following is None


def test_a_server_that_loses_calls_ends_nothing(world: Workspace) -> None:
    done = _curation(world, 300, _Losing(), replace(SETTINGS, attempts=1)).ask(Budget(300))
    assert done.following is None and done.calls <= 300


def test_proposing_decides_nothing(world: Workspace) -> None:
    done = _curation(world, 600, propose=True).ask(Budget(600))
    confirmed = next(step for step in done.steps if step.step == "confirm")
    assert confirmed.gain is not None and confirmed.gain > 0 and confirmed.batch is None
    assert history(world) == [] and done.before == done.after


def _held(world: Workspace) -> CurationReport:
    """Step by step up to the pruning that waits."""
    done = _curation(world, 600, one_step=True, hold=True).ask(Budget(600))
    while done.held is None:
        assert done.following is not None
        done = _curation(world, 600, one_step=True, hold=True).ask(Budget(600))
    return done


def test_a_pruning_waits_for_its_answer_and_accepted_it_is_as_if_it_had_not(world: Workspace) -> None:
    whole, done = whole_curation(), _held(world)
    assert done.held is not None and (done.held.sources, done.following) == (("bad",), "confirm")
    assert done.held.step.gain is not None and done.held.step.calls > 0 and history(world) == []
    assert brief_curation(done).startswith("ended with a question: ")  # also where it is answered by now
    with pytest.raises(UsageError, match="waits for your answer"):
        _curation(world, 600).ask(Budget(600))
    accepted = answer(world, SETTINGS, accept=True)
    assert accepted.held is None and accepted.pruned == ("bad",) and accepted.steps[-1].batch == 1
    with pytest.raises(UsageError, match="no pruning waits"):
        answer(world, SETTINGS, accept=True)
    rest = _curation(world, 600, hold=True).ask(Budget(600))
    assert [(s.step, s.calls, s.gain, s.found, s.batch) for s in rest.steps] == [
        (s.step, s.calls, s.gain, s.found, s.batch) for s in whole.steps
    ]
    assert (rest.before, rest.after, rest.calls, rest.following) == (whole.before, whole.after, whole.calls, None)
    assert [CurationReport.from_json(run.summary).held is None for run in runs.runs(world, KIND)][:2] == [True, True]


def test_the_plan_of_what_follows_says_that_a_pruning_waits(
    world: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    waits = _held(world).held
    work = _curation(world, 600)
    assert waits is not None and work.begun is not None and work.begun.held == waits
    plan = CurationDryRun(tuple(work.steps), DryRun(work.cost(), ""), work.visible, waits)
    show_curation_plan(plan, work.suspected, len(work.begun.steps) + 1)
    told = capsys.readouterr().out
    assert f"answer: {waits.step.found}" in told and "icl-curate curate --accept --dry-run" in told
    assert ("waits for you", waits.step.found) in dry_run_rows(plan)
    assert work.steps[0].step == "ask", "the plan is what follows an accepted pruning"


def _with_corrections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The evidence knows the wrong rows, and of most of them the right answer; ``relabel`` asks for it."""
    gathered = tune.gather

    def known(workspace: Workspace, settings: Settings, monitor: Monitor, relabel: bool) -> Any:
        found = gathered(workspace, settings, monitor, relabel)
        settled = settled_rows(workspace)
        wrong = {row: 0.95 for row in found.rows.tolist() if row % 2 and row not in settled}
        likely = {row: ("yes", 0.9 if row > 20 else 0.6) for row in wrong if relabel}
        return replace(found, reliability={}, posterior=wrong, corrections=likely)

    monkeypatch.setattr(tune, "gather", known)


def test_with_another_request_a_run_begins_anew(world: Workspace) -> None:
    def steps(settings: Settings) -> int:
        _curation(world, 600, settings=settings, one_step=True).ask(Budget(600))
        (stored,) = [found for found in [state.kept(world)] if found is not None]
        assert stored.key.get("request") == ({"top_p": 0.5, "stop": ["x"]} if settings.top_p else None)
        return len(stored.steps)

    other = replace(SETTINGS, top_p=0.5, stop=("x",))
    assert [steps(one) for one in (SETTINGS, SETTINGS, other, other)] == [1, 2, 1, 2]


def test_what_is_likely_is_corrected_and_one_undo_takes_it_back(
    world: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_corrections(monkeypatch)
    before = _accuracy(world)
    done = _curation(world, 600).ask(Budget(600))
    assert (done.pruned, done.pruned_rows, done.relabelled) == ((), 10, 50)
    assert {each.output for each in relabelled(world)} == {"yes"}
    assert done.after is not None and _accuracy(world) > before
    (decision,) = [entry for entry in history(world) if "relabel" in entry.action]
    assert decision.batch == next(step.batch for step in done.steps if step.batch)
    assert "10 rows pruned in all, 50 relabelled" in brief_curation(done) and "50 relabelled" in "".join(
        curation_verdict(done)
    )
    undo(world)
    assert (relabelled(world), _accuracy(world)) == ([], before)
    pruned = _curation(world, 600, relabel=False).ask(Budget(600))
    assert (pruned.pruned_rows, pruned.relabelled) == (60, 0)


def test_corrections_wait_for_the_curator_like_prunings(world: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    _with_corrections(monkeypatch)
    done = _curation(world, 600, hold=True).ask(Budget(600))
    assert done.held is not None and len(done.held.outputs) == 50 and not relabelled(world)
    assert "relabelled: 50 rows: p-21 → yes" in "\n".join(held_lines(done.held))
    assert answer(world, SETTINGS, accept=True).relabelled == 50
    undo(world)
    again = _curation(world, 600, hold=True, anew=True).ask(Budget(600))
    assert again.held is not None and again.held.outputs == done.held.outputs
    assert answer(world, SETTINGS, accept=False).relabelled == 0
    other = _curation(world, 600, hold=True).ask(Budget(600))
    assert other.held is None or not other.held.outputs, "what was rejected is not proposed again"


def test_a_rejected_pruning_is_not_made_and_not_proposed_again(held: Workspace) -> None:
    (kept,), steps = runs.runs(held, KIND), 0
    proposed = CurationReport.from_json(kept.summary).held
    assert proposed is not None and proposed.sources == ("bad",)
    done = answer(held, SETTINGS, accept=False)
    assert done.steps[-1].found.endswith("; rejected") and done.steps[-1].batch is None
    assert done.steps[-1].gain is not None and done.after == done.before
    while done.following is not None:
        done = _curation(held, 600, one_step=True, hold=True).ask(Budget(600))
        assert done.held is None or (done.held.sources, done.held.rows) != (proposed.sources, ())
        done, steps = (answer(held, SETTINGS, accept=False) if done.held else done), steps + 1
    assert 1 < steps < 10 and history(held) == [] and done.calls <= 600
    assert not (held.path / CURATION).exists()


def test_what_the_curator_rejects_does_not_change_what_it_was_before(held: Workspace) -> None:
    run = state.kept(held)
    assert run is not None and run.pending is not None and run.before == run.pending.before
    run.before, run.queries = 0.9, run.pending.queries + 1  # a larger race of the same pool
    run.pending = replace(run.pending, before=0.5)
    state.keep(held, run)
    assert answer(held, SETTINGS, accept=False).before == 0.9
    state.keep(held, run)
    assert answer(held, SETTINGS, accept=True).before == 0.5


def test_rows_that_repeat_queries_wait_too(world: Workspace) -> None:
    with world.write() as con:
        con.execute("INSERT INTO duplicates SELECT row, 4, 'exact', 1.0, 4 FROM demonstrations WHERE id = 'q-0'")
    done = _held(world)
    assert done.held is not None and done.held.step.step == "check" and done.held.rows == ("p-4",)
    assert answer(world, SETTINGS, accept=True).pruned_rows == 1
    assert _held(world).steps[0].batch == 1


@pytest.mark.parametrize("decided", [False, True])
def test_a_kill_beside_the_answer_makes_it_once(
    held: Workspace, decided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = state.revise

    def dies(*what: Any, dry_run: bool = False) -> Any:
        if decided or dry_run:
            change = decide(*what, dry_run=dry_run)
            if dry_run:
                return change
        raise _Killed

    with monkeypatch.context() as patch, pytest.raises(_Killed):
        patch.setattr(state, "revise", dies)
        answer(held, SETTINGS, accept=True)
    done = _curation(held, 600, hold=True).ask(Budget(600))
    assert [entry.action for entry in history(held)] == ["prune"] and done.pruned == ("bad",)
    assert done.following is None and sum(step.calls for step in done.steps) == done.calls


def test_the_command_answers_and_a_job_is_not_asked(world: Workspace, tmp_path: Path, run: Run) -> None:
    assert run("curate", "-w", world.path, "--accept", "--reject").code == 2
    assert run("curate", "-w", world.path, "--reject").code == 2
    held = make_held_world(tmp_path / "held")
    refused = run("curate", "-w", held.path, "--max-calls", "600", "--yes")
    assert refused.code == 2 and "waits for your answer" in refused.err
    shown = "fix: icl-curate curate", "--accept --dry-run"
    assert all(part in refused.err for part in shown)
    assert run("status", "-w", held.path, "--json").json["next_step"] == "icl-curate curate --accept --dry-run"
    seen = run("curate", "-w", held.path, "--accept", "--dry-run")
    assert seen.code == 0 and "icl-curate curate" in seen.out + seen.err and "--reject" in seen.out + seen.err
    assert run("curate", "-w", held.path, "--accept", "--dry-run", "--json").json["pruned"] == ["bad"]
    for other in (["--reject", "--dry-run"], *(["--accept", flag] for flag in ("--propose", "--restart", "--hold"))):
        assert run("curate", "-w", held.path, *other).code == 2
    assert not history(held), "nothing is decided by looking"
    done = run("curate", "-w", held.path, "--accept")
    assert done.code == 0 and "pruned sources: bad" in done.out and len(history(held)) == 1
    with pytest.raises(UsageError, match="cannot ask"):
        JobCommand.of(["curate", "--max-calls", "9"]).checked()
    assert JobCommand.of(["curate", "--max-calls", "9", "--yes"]).checked()


def test_the_gain_of_a_decision_that_was_undone_is_not_claimed(
    held: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(held, SETTINGS, accept=True)
    undo(held)
    done = _curation(held, 600).ask(Budget(600))
    assert done.before is not None and done.after is None and done.version == ""
    assert [step.found.endswith("; undone") for step in done.steps if step.batch == 1] == [True]
    assert any("what it is now is not known" in line for line in curation_verdict(done))


def test_what_is_no_longer_there_is_not_accepted_and_can_be_rejected(held: Workspace) -> None:
    with held.write() as con:
        con.execute("UPDATE demonstrations SET retired_at = now() WHERE source = 'bad'")
    with pytest.raises(UsageError):
        answer(held, SETTINGS, accept=True)
    assert answer(held, SETTINGS, accept=False).held is None and history(held) == []


def test_few_calls_go_into_the_race_alone_and_none_are_asked_where_none_are_allowed(world: Workspace) -> None:
    assert [step.step for step in _curation(world, 100).steps] == ["check", "confirm"]
    llm = Gullible()
    done = _curation(world, 0, llm).ask(Budget(0))
    assert (done.before, done.calls, llm.asked) == (None, 0, [])


def test_a_limit_of_money_is_kept_and_what_was_spent_is_told(
    world: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    price = Price(1.0, 1.0)
    work = _curation(world, None, settings=PRICED, max_cost=0.01)
    assert 0 < work.calls < 1_000 and work.cost().cost is not None
    budget = Budget(None, 0.01, price)
    done = work.ask(budget)
    assert 0 < budget.cost <= 0.01 and done.cost == pytest.approx(budget.cost, abs=1e-6)
    show_curation(done)
    assert f" made for ${done.cost:.4f}; undo" in " ".join(capsys.readouterr().out.split())


def test_without_a_limit_it_is_refused() -> None:
    with pytest.raises(UsageError, match="how much may it cost"):
        CurationPlan()


def test_the_same_by_hand_has_the_same_prompt(
    tmp_path: Path, world: Workspace, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_hand(*more: str) -> list[str]:
        words = ("curate", "--max-calls", "400", "-m", "bm25", "-k", "3", "--llm", "offline", "-w", world.path, *more)
        return [step["command"] for step in run(*words, "--dry-run", "--json").json["steps"][1:]]

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jinja").write_text("{{ query.input }}")
    for name in ("xml", "mine.jinja"):
        assert all(f" --template {name} " in f"{command} " for command in by_hand("--template", name))
    (world.path / "own.jinja").write_text("{{ query.input }}")
    (world.path / "config.toml").write_text('template = "own.jinja"\n')
    (world.path / "config.toml").unlink()
    server = ("--llm", "openai:mine", "--base-url", "http://127.0.0.1:9/v1")
    told = " ".join(server)
    assert all(told in command for command in by_hand(*server)), "else a pasted command would ask OpenAI"
    (world.path / "config.toml").write_text('template = "own.jinja"\n')
    assert not any("--template" in command for command in by_hand())  # the file is named by the config alone


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """How each race is held, what it names and its care, where evidence is known of the wrong rows."""
    gathered, raced, how = tune.gather, tune.race, list[tuple[int, float]]()

    def known(*given: Any, **more: Any) -> Any:
        return replace(gathered(*given, **more), posterior=dict.fromkeys(range(1, 120, 2), 0.95), answered=False)

    def race(*given: Any, **more: Any) -> Any:
        how.append((more["named"], more["care"]))
        return raced(*given, **more)

    monkeypatch.setattr(tune, "gather", known)
    monkeypatch.setattr(tune, "race", race)
    return how


@pytest.mark.parametrize("stop_after", [None, 100, 210])
def test_a_first_race_that_runs_out_of_calls_while_something_gains_goes_on(
    world: Workspace, looked: list[tuple[int, float]], stop_after: int | None
) -> None:
    """It is the same race: of its candidates the same one is named, and no query is asked again. What comes after it is
    judged with more care. Where it was stopped decides nothing."""
    plan, first = {"noise": 20, "one_step": stop_after is None}, Gullible(CancelToken(), stop_after)
    first.max_in_flight = 8
    if stop_after:
        with pytest.raises(Cancelled):
            _curation(world, 460, first, **plan).ask(Budget(460))
    second = Gullible()
    done = _curation(world, 460, second, **plan).ask(Budget(460))
    while done.following:
        done = _curation(world, 460, second, **plan).ask(Budget(460))
    asked = Counter([*first.asked, *second.asked])
    assert max(asked.values()) == 1 and done.calls == asked.total() <= 460
    what = [step.what for step in done.steps]
    assert what[:3] == ["prune rows that repeat a query", "race of prunings", "race of prunings, continued"]
    races = [TuneReport.from_json(run.summary) for run in reversed(runs.runs(world, "tune")) if run.status == "done"]
    before, whole = races[:2]
    assert before.confirmed and whole.confirmed and before.confirmed.queries < whole.confirmed.queries
    assert before.stopped and before.doubt and before.doubt in done.steps[1].found
    assert [one.name for one in before.candidates] == [one.name for one in whole.candidates]
    assert done.before == whole.validation_before
    *same, last = looked
    assert len({*same}) == 1 and same[0][0] > 0 and same[0][1] == 1.0
    assert last == (0, pytest.approx(1.96 / 1.645))


def test_a_race_after_one_that_went_on_is_judged_with_more_care(world: Workspace) -> None:
    """Of three looks at one run each would be at the level that one may have."""
    race = StepDone("confirm", "race of prunings", 60)
    before = state.Progress({}, "", (race, race), continued=True, before=0.5, limit=600)
    curation = _curation(world, 600, noise=20)
    plain, careful = (
        curation._confirm(replace(before, continued=continued), Budget(600)) for continued in (False, True)
    )
    assert plain and careful and plain.gain == careful.gain != 0
    seen = [step.high - step.gain for step in (plain, careful) if step.high is not None and step.gain is not None]
    assert seen[1] == pytest.approx(seen[0] * 1.96 / 1.645)


def test_a_pool_that_others_change_meanwhile_is_not_locked(world: Workspace) -> None:
    _curation(world, 600, one_step=True).ask(Budget(600))
    decide(world, "prune", "demonstration", [fetch(world, active_rows(world)[:1])[0].id])
    done = _curation(world, 600).ask(Budget(600))
    assert done.following is None and done.before is not None and done.disturbed
    assert done.version == "" and not (world.path / FILE).exists()
    told = next(line for line in curation_verdict(done) if "not what was judged, so nothing is locked" in line)
    assert told.endswith(f"&& icl-curate lock --method {done.served}")
    again = _curation(world, 600, anew=True).ask(Budget(600))
    assert again.version and not again.disturbed and (world.path / FILE).exists()


def test_the_accuracy_before_says_on_how_many_queries_and_is_that_of_the_most(world: Workspace) -> None:
    """Nothing is pruned: the race of methods measures the same pool on more queries than the race of prunings."""
    done = _curation(world, 300, propose=True).ask(Budget(300))
    told = next(line for line in curation_verdict(done) if "stays" in line)
    assert done.queries is not None and f"on {done.queries} validation queries stays" in told
    rows = {record.run: CurationReport.from_json(record.summary) for record in runs.runs(world, KIND)}
    assert rows[done.run].queries == done.queries


@pytest.mark.parametrize("propose", [False, True])
def test_before_and_after_are_of_the_queries_of_the_race_that_gained(world: Workspace, propose: bool) -> None:
    """A first race saw ten easy queries and gained nothing."""
    begun = Progress({}, state.now(), (StepDone("confirm", ""),), limit=600)
    begun.before, begun.queries, before = 0.95, 10, _accuracy(world)
    curation = _curation(world, 600, propose=propose)
    done = curation._confirm(begun, Budget(600))
    report = state.report_of(world, 1, begun, Spent(0, 0, 0))
    assert (report.before, report.queries) == (before, 60) and done is not None and done.gain is not None
    assert report.after == (before if propose else pytest.approx(before + done.gain)) and done.gain > 0.2


def test_gains_on_different_queries_are_not_added(world: Workspace) -> None:
    gained = Progress({}, state.now(), (StepDone("confirm", ""),), limit=600)
    gained.before, gained.queries, gained.gained = 0.75, 10, 0.2
    _curation(world, 600)._confirm(gained, Budget(600))
    report = state.report_of(world, 1, gained, Spent(0, 0, 0))
    assert (report.before, report.after, report.queries) == (0.75, None, None)
    assert any("was 0.750; its gains are of different queries" in line for line in curation_verdict(report))


def test_a_later_race_that_measures_less_on_the_same_queries_is_believed(world: Workspace) -> None:
    """Each half of the queries raced another pool than the one that was made."""
    gained = Progress({}, state.now(), (StepDone("confirm", ""),), limit=600, before=0.1, queries=60, gained=0.4)
    state.note_before(gained, 0.2, 60)
    gained.gained += 0.3
    assert state.report_of(world, 1, gained, Spent(0, 0, 0)).after == pytest.approx(0.5)
    state.note_before(gained, 0.9, 60)  # of rows that these queries taught: it proves nothing more
    assert gained.gained == pytest.approx(0.4)
    state.note_before(gained, 0.05, 60)
    assert "falls to 0.050" in "".join(curation_verdict(state.report_of(world, 1, gained, Spent(0, 0, 0))))


def test_a_run_in_which_nothing_could_be_decided_locks_nothing(world: Workspace) -> None:
    done = _curation(world, 100, _Deaf()).ask(Budget(100))
    assert any("nothing is decided" in step.found for step in done.steps)
    assert (done.following, done.before, done.version) == (None, None, "") and not (world.path / FILE).exists()
    assert any("nothing could be decided; run the same command again" in line for line in curation_verdict(done))


def test_a_run_killed_beside_its_own_leak_pruning_is_not_disturbed(
    world: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*what: Any) -> None:
        raise _Killed

    leaking = {fetch(world, active_rows(world)[:1])[0].id: "repeats a query"}
    with monkeypatch.context() as patch, pytest.raises(_Killed):
        patch.setattr(curation, "prunable", lambda *_: leaking)
        patch.setattr(Curation, "_finish", dies)
        _curation(world, 600).ask(Budget(600))
    done = _curation(world, 600).ask(Budget(600))
    assert len(history(world)) == 2 and not done.disturbed and done.version


def test_a_relabelled_row_that_is_pruned_counts_as_pruned(world: Workspace) -> None:
    first, second = (row.id for row in fetch(world, active_rows(world)[:2]))
    relabel(world, {first: "no", second: "no"}, ["by hand"] * 2)
    decide(world, "prune", "demonstration", [first])
    report = state.report_of(world, 1, Progress({}, state.now()), Spent(0, 0, 0))
    assert (report.pruned_rows, report.relabelled) == (1, 1) == (1, save_version(world, "v").corrected)
    assert corrections(world).rows == 1


def test_an_amount_is_typed_with_all_its_digits() -> None:
    assert budget_of(Progress({"max_cost": 123.4567}, "")) == "$123.4567"
