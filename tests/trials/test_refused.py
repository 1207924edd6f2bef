"""A demonstration whose prompts are refused gains nothing by that, whatever is learnt of the answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories.gullible_world import SETTINGS, Gullible, make_gullible_world
from icl_curate.engine.baselines.datamodel import DatamodelPlan, DatamodelTraining
from icl_curate.engine.checks.ask import RowTraining
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Failure, Request, Result
from icl_curate.engine.store import trials
from icl_curate.engine.trials.sources import SourcePlan, SourceTraining


class Filtered(Gullible):
    """Refuses every third of the prompts that it would answer wrong."""

    spec = "filtered"

    def identity(self) -> dict[str, str]:
        return {"backend": "filtered"}

    def _answer(self, request: Request) -> Result:
        answer, text = super()._answer(request), request.prompt.text
        return Failure("refusal", "filtered") if answer.text == "wrong" and sum(map(ord, text)) % 3 == 0 else answer


@pytest.fixture
def llms(tmp_path: Path) -> list[LLMClient]:
    return [
        LLMClient(make_gullible_world(tmp_path / name), backend, SETTINGS)
        for name, backend in (("open", Gullible()), ("filtered", Filtered()))
    ]


def test_sources_keep_the_answers_that_were_refused(llms: list[LLMClient]) -> None:
    plain, filtered = (SourceTraining.prepare(llm, SourcePlan(depth=10)).ask(Budget()) for llm in llms)
    assert filtered.usage.failures > 50
    for name, scores in plain.metrics.sources.items():
        assert filtered.metrics.sources[name]["reliability"] == pytest.approx(scores["reliability"])
    kept = trials.latest(llms[1].workspace)
    assert kept is not None and len(kept.rows) == 600 and kept.answers.count("") == filtered.usage.failures
    assert not kept.values[[answer == "" for answer in kept.answers]].any()


def test_the_datamodel_keeps_the_prompts_that_were_refused(llms: list[LLMClient]) -> None:
    plain, filtered = (DatamodelTraining.prepare(llm, DatamodelPlan(prompts=5)).ask(Budget()) for llm in llms)
    assert filtered.usage.failures > 20
    assert (filtered.metrics.prompts, filtered.metrics.right) == (plain.metrics.prompts, plain.metrics.right)
    assert filtered.metrics.sources == plain.metrics.sources


def test_rows_keep_the_answers_that_were_refused(llms: list[LLMClient]) -> None:
    done = RowTraining.prepare(llms[1]).ask(Budget())
    kept = trials.latest_answers(llms[1].workspace, False)
    refused = [answer == "" for answer in kept.answers]
    assert done.usage.failures == sum(refused) > 10 and done.metrics.rows == len(kept.rows) == 120
    assert not kept.right[refused].any() and done.metrics.right == pytest.approx(kept.right.mean())
