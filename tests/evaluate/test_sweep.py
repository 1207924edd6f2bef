"""Methods over values of one setting: each point against its own evaluation, what is asked, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from factories.commands import Run
from factories.gullible_world import SETTINGS, Gullible, make_gullible_world
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan, SweepPlan, sweep_named
from icl_curate.engine.evaluate.results import SweepReport
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Request, Result
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.store.demonstrations import queries
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials.ranker import rank_untrained
from icl_curate.render.evaluation import method_lines, p_value


def test_each_value_is_an_evaluation_and_nothing_is_asked_twice(run: Run, support: Path) -> None:
    words = ("evaluate", "-m", "bm25,zero", "--limit", 10, "-w", support)
    swept = (*words, "--sweep", "k=0,1,3")
    price = run(*swept, "--dry-run", "--json").json
    assert (price["requests"], price["distinct"], price["to_ask"]) == (60, 30, 30)  # zero, also at k = 0, is asked once
    told = run(*swept, "--flips", "--json").json
    report = SweepReport.from_json(told)
    assert (report.setting, [point.value for point in report.points]) == ("k", [0, 1, 3])
    for point in report.points:
        assert point.report.setup.k == point.report.methods["bm25"].shots == point.value
        alone = run(*words, "-k", point.value, "--json").json
        assert alone["methods"]["bm25"]["cached_calls"] == alone["methods"]["bm25"]["calls"] == 10
        for figure in ("accuracy", "ci95", "easy", "hard"):
            found = next(p for p in told["points"] if p["value"] == point.value)
            assert found["methods"]["bm25"][figure] == alone["methods"]["bm25"][figure]
    none = report.points[0].report.flips
    assert none and (none["bm25"].changed, none["bm25"].hard_share) == (0, None)
    assert run(*swept, "--dry-run", "--json").json["to_ask"] == 0
    shown = run(*swept).out
    assert f"{report.points[2].report.methods['bm25'].accuracy:.3f}" in shown and "█" in shown
    assert "40 answers" not in shown and "60 answers of offline, 60 from the cache" in shown


def test_preselect_is_the_number_of_candidates_of_policies_too(support: Path) -> None:
    workspace = Workspace.open(support)
    asked, plan = queries(workspace, "test", 3), SweepPlan(setting="preselect", values=(4, 12))
    ranked = [rank_untrained(PoolView(workspace, plan.settings(Settings(), n)), asked, 20) for n in plan.values]
    few, many = ({tuple(sorted(each.rows.tolist())) for each in found} for found in ranked)
    assert few == many  # at least k are found, whatever the value
    best = [rank_untrained(PoolView(workspace, plan.settings(Settings(), n)), asked, 4) for n in (4, 12)]
    assert [set(a.rows.tolist()) for a in best[0]] != [set(b.rows.tolist()) for b in best[1]]
    assert plan.settings(Settings(), 4) == replace(Settings(), preselect=4, policy_candidates=4)


@pytest.mark.parametrize("text", ["seed=1,2", "k", "k=", "k=1,x", "k=-1,2", "k=2,2", "preselect=0", "k=1,,2"])
def test_other_settings_and_odd_values_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        sweep_named(text)
    assert "--sweep" in caught.value.fix


def test_answers_without_shots_are_counted_where_zero_is_not_compared(run: Run, support: Path) -> None:
    asked = ("--limit", 10, "--seeds", 1, "-k", 1, "--llm", "offline", "-w", support)
    told = run("evaluate", "-m", "bm25", *asked)
    assert "20 answers of offline, 0 from the cache" in told.out
    counted = run("evaluate", "-m", "bm25", *asked, "--json").json
    assert counted["zero_shot"]["calls"] == counted["zero_shot"]["cached_calls"] == 10
    assert "zero_shot" not in run("evaluate", "-m", "zero,bm25", *asked, "--json").json


def test_the_best_method_is_compared_with_no_demonstrations(run: Run, support: Path) -> None:
    asked = ("--limit", 40, "--seeds", 1, "-k", 2, "--llm", "offline", "-w", support)
    both = run("evaluate", "-m", "zero,bm25", *asked, "--json").json["methods"]
    alone = run("evaluate", "-m", "bm25", *asked, "--json").json
    over = alone["against_zero"]
    assert over["method"] == "zero"
    assert over["difference"] == pytest.approx(both["bm25"]["accuracy"] - both["zero"]["accuracy"])
    told = f"bm25 against no demonstrations: {over['difference']:+.3f}"
    assert over["low"] <= over["difference"] <= over["high"]
    [shown] = [line for line in run("evaluate", "-m", "bm25", *asked).out.splitlines() if told in line]
    assert shown.endswith(f"), p {p_value(over['p'])}")  # a single method was not chosen
    also = "each query is also asked without demonstrations"
    assert also in run("evaluate", "-m", "bm25", "--dry-run", *asked).err
    assert also not in run("evaluate", "-m", "zero,bm25", "--dry-run", *asked).err
    none = run("evaluate", "-m", "bm25", *asked, "-k", 0, "--json")
    assert "against_zero" not in none.json and also not in none.err, "these are the same prompts"


class Misled(Gullible):
    """Right without a demonstration, wrong with any."""

    spec = "misled"

    def _answer(self, request: Request) -> Result:
        shown = "yes" in request.prompt.text or "wrong" in request.prompt.text
        return Answer("wrong" if shown else "yes", tokens_in=1, tokens_out=1)


def test_where_no_demonstrations_are_better_it_is_said(tmp_path: Path) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    llm = LLMClient(workspace, Misled(), SETTINGS)
    done = Evaluation.prepare(llm, EvaluationPlan(methods=("random", "bm25"), split="validation")).ask(Budget())
    over = done.against_zero
    assert over is not None and over.high < 0 and over.p_holm < 0.001
    [told] = [line for line in method_lines(done) if "no demonstrations" in line]
    assert told.startswith("WARNING: ") and told.endswith("answers better without")


def test_the_best_of_many_is_told_with_a_p_that_allows_for_the_choice(tmp_path: Path) -> None:
    workspace = make_gullible_world(tmp_path / "w")
    llm = LLMClient(workspace, Misled(), SETTINGS)
    plan = EvaluationPlan(methods=("random", "bm25", "dense"), split="validation")
    done = Evaluation.prepare(llm, plan).ask(Budget())
    [told] = [line for line in method_lines(done) if "no demonstrations" in line]
    assert f", p {p_value(done.against_zero.p_holm)} (adjusted for choosing the best of 3 on these queries; " in told


def test_what_every_query_was_asked_without_demonstrations_is_counted(run: Run, support: Path) -> None:
    shown = run("evaluate", "-m", "bm25", "--limit", 10, "--sweep", "k=1,3", "-w", support).out
    assert "40 answers of offline, 10 from the cache" in shown  # ten without, asked once; ten each with one and three


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("-m", ","), "no methods to compare are given"),
        (("--sweep", "k=1,2", "--sweep", "preselect=3,4"), "one setting is swept at a time"),
    ],
)
def test_what_compares_nothing_or_too_much_is_refused(
    run: Run, support: Path, options: tuple[str, ...], told: str
) -> None:
    refused = run("evaluate", *options, "--limit", 5, "-w", support)
    assert refused.code == 2 and told in refused.err
    assert run("status", "-w", support, "--json").json["calls"] == {}
