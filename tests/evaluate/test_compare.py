"""The comparison of methods on the sample pool, its table against a second computation from the kept outcomes."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.asked_world import SETTINGS, Scripted, evaluate, make_world, texts
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.base.progress import CancelToken, Monitor
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.evaluate.results import EvaluationReport
from icl_curate.engine.llm.asking import backend_for
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.marks import Tally
from icl_curate.engine.llm.types import Request
from icl_curate.engine.retrieval.artefacts import encode_for_reader
from icl_curate.engine.store.runs import outcomes, runs
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.render.preview import how_read


def _evaluate(workspace: Workspace, plan: EvaluationPlan, **settings: Any) -> EvaluationReport:
    chosen = Settings(**settings)
    with backend_for(chosen, encode_for_reader(workspace, chosen)) as backend:
        return Evaluation.prepare(LLMClient(workspace, backend, chosen), plan).ask(Budget())


def _outcomes(workspace: Workspace, run: int, method: str) -> dict[int, dict[int, bool]]:
    """Right or wrong by seed and row, read from the table itself."""
    with workspace.read() as con:
        rows = con.execute(
            "SELECT seed, row, correct FROM evaluations WHERE run = ? AND method = ?", [run, method]
        ).fetchall()
    found: dict[int, dict[int, bool]] = {}
    for seed, row, correct in rows:
        found.setdefault(seed, {})[row] = correct
    return found


def test_the_table_is_what_the_kept_outcomes_say(support: Path) -> None:
    workspace = Workspace.open(support)
    table = _evaluate(workspace, EvaluationPlan(methods=("random", "dense", "bm25"), seeds=3, limit=80), k=4)
    zero = _outcomes(workspace, table.run, "zero")[0]
    assert table.easy_queries == sum(zero.values())
    assert table.easy_queries + table.hard_queries == 80
    for name, seeds in (("random", 3), ("dense", 1), ("bm25", 1)):
        row = table.methods[name]
        kept = _outcomes(workspace, table.run, name)
        assert len(kept) == row.seeds == seeds
        means = [np.mean(list(by_row.values())) for by_row in kept.values()]
        assert row.accuracy == pytest.approx(np.mean(means))
        assert row.std == (pytest.approx(np.std(means, ddof=1)) if seeds > 1 else None)
        assert row.ci95[0] <= row.accuracy <= row.ci95[1]
        easy = [right for by_row in kept.values() for r, right in by_row.items() if zero[r]]
        assert row.easy == pytest.approx(np.mean(easy))
        assert (row.shots, row.usage.calls) == (4, 80 * seeds)
    assert EvaluationReport.from_json(runs(workspace, "evaluate")[0].summary) == table
    versus = table.methods["dense"].versus
    assert versus and versus.method in {"random", "bm25"}


def test_two_baselines_that_are_compared_with_each_other_are_one_test(support: Path) -> None:
    """Holm 1979 by hand: of the tests in the table, the one of the two best baselines stands in both their rows."""
    workspace = Workspace.open(support)
    two = _evaluate(workspace, EvaluationPlan(methods=("bm25", "dense"), seeds=1, limit=60)).methods
    assert [row.versus.p_holm for row in two.values()] == [two["bm25"].versus.p] * 2
    table = _evaluate(workspace, EvaluationPlan(methods=("bm25", "dense", "random", "dpp"), seeds=1, limit=60)).methods
    tests = {tuple(sorted((name, row.versus.method))): row.versus.p for name, row in table.items()}
    assert len(tests) == 3
    ordered = sorted(tests, key=tests.__getitem__)
    adjusted = {
        pair: max(min(1.0, (3 - i) * tests[ordered[i]]) for i in range(ordered.index(pair) + 1)) for pair in tests
    }
    for name, row in table.items():
        assert row.versus.p_holm == pytest.approx(adjusted[tuple(sorted((name, row.versus.method)))])


def test_demonstrations_help_the_reader_and_selection_matters(support: Path) -> None:
    table = _evaluate(Workspace.open(support), EvaluationPlan(methods=("zero", "random", "dense"))).methods
    assert table["dense"].ci95[0] > table["random"].ci95[1]


def test_a_method_most_of_whose_calls_failed_is_not_the_best(support: Path) -> None:
    table = _evaluate(Workspace.open(support), EvaluationPlan(methods=("random", "dense"), seeds=1, limit=10))
    assert table.best == "dense"
    failed = replace(table.methods["random"], accuracy=1.0, outcomes=Tally(right=1, failed=9))
    assert replace(table, methods={"random": failed, "dense": table.methods["dense"]}).best == "dense"
    assert replace(table, methods={"random": failed}).best == "random"


def test_a_repeated_run_asks_nothing_and_says_the_same(support: Path) -> None:
    workspace = Workspace.open(support)
    plan = EvaluationPlan(methods=("dense", "random"), seeds=2, limit=40)
    first, again = _evaluate(workspace, plan), _evaluate(workspace, plan)
    for name in ("dense", "random"):
        assert again.methods[name].usage.cached_calls == again.methods[name].usage.calls
        for figure in ("accuracy", "ci95", "easy", "hard", "shots", "usage.tokens_in"):
            assert attrgetter(figure)(again.methods[name]) == attrgetter(figure)(first.methods[name])
    assert [run.status for run in runs(workspace, "evaluate")] == ["done", "done"]


def test_a_cancelled_run_is_marked_and_goes_on_later(support: Path) -> None:
    workspace = Workspace.open(support)
    settings = Settings()
    token = CancelToken()
    with backend_for(settings, encode_for_reader(workspace, settings)) as backend:
        evaluation = Evaluation.prepare(
            LLMClient(workspace, backend, settings, Monitor(cancel=token)), EvaluationPlan(methods=("dense",), limit=20)
        )
        token.cancel()
        with pytest.raises(Exception, match="interrupted"):
            evaluation.ask(Budget())
    assert runs(workspace, "evaluate")[0].status == "interrupted"
    assert _evaluate(workspace, EvaluationPlan(methods=("dense",), limit=20)).methods["dense"].usage.failures == 0


def test_a_dry_run_counts_and_asks_nothing(support: Path) -> None:
    workspace = Workspace.open(support)
    settings = Settings(llm="openai:no-such-model", base_url="http://127.0.0.1:9/v1", k=2)
    with backend_for(settings, encode_for_reader(workspace, settings)) as backend:
        plan = EvaluationPlan(methods=("dense",), limit=10)
        cost = Evaluation.prepare(LLMClient(workspace, backend, settings, dry_run=True), plan).cost()
    assert (cost.requests, cost.to_ask, cost.cost) == (20, 20, None)
    assert 0 < cost.tokens_in[0] < cost.tokens_in[1]


def test_what_cannot_be_compared_is_refused_before_anything_is_asked(support: Path) -> None:
    workspace = Workspace.open(support)
    with pytest.raises(UsageError, match="unknown method"):
        _evaluate(workspace, EvaluationPlan(methods=("dense", "nonsense")))
    with workspace.write() as con:
        con.execute("UPDATE demonstrations SET retired_at = now()::TIMESTAMP WHERE split = 'test'")
    with pytest.raises(UsageError, match="no test queries") as refused:
        _evaluate(workspace, EvaluationPlan(methods=("dense",)))
    assert refused.value.fix.startswith("icl-curate index --test ") and "--split validation" in refused.value.fix


def test_an_answer_by_letter_is_shown_as_its_option(tmp_path: Path) -> None:
    """Of one method letters, of the other letters and an option."""
    options = ["a red fish", "a blue bird", "a green tree"]
    rows = [{"input": text, "options": options, "output": options[i % 3]} for i, text in enumerate(texts(9, 1))]
    workspace = make_world(tmp_path / "w", rows[:6], [{"id": f"q{i}", **rows[6 + i]} for i in range(3)])

    def says(request: Request) -> str:
        if not request.prompt.demonstrations:
            return "(B)"
        return {"q0": "b", "q1": "Answer: C.", "q2": "a green tree"}[request.prompt.query.id]

    settings = replace(SETTINGS, answers="generate")
    table = evaluate(workspace, Scripted(says), "zero", "bm25", settings=settings)
    seen = {one.id: one for one in outcomes(workspace, table.run, "bm25", "zero")}
    assert [seen[name].answer for name in ("q0", "q1", "q2")] == ["a blue bird", "a green tree", "a green tree"]
    assert {one.other_answer for one in seen.values()} == {"a blue bird"}
    assert "the reply was:\nb" in how_read(seen["q0"].how, seen["q0"].reply, seen["q0"].answer)
    assert how_read(seen["q2"].how, seen["q2"].reply, seen["q2"].answer) == ""
