"""The baseline that criticises documents, what each arm costs, and figures by a field of the queries."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from factories.calibrate_world import CAPITAL, COUNT, SCRIPT, SETTINGS, Scripted, workspace_of
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Failure, Request, Result
from icl_curate.engine.papers.calibrate.calibration import Calibration
from icl_curate.engine.papers.calibrate.documents import queries_of
from icl_curate.engine.papers.calibrate.results import SetCalibration
from icl_curate.engine.papers.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.papers.calibrate.variants import CHOICES, best_document, share_of_yes
from icl_curate.engine.store.workspace import Workspace

JUDGED: Mapping[tuple[str, str], tuple[str, str]] = {
    ("capital", "Italy"): ("no", "yes"),
    ("capital", "Norway"): ("yes", "yes"),
    ("capital", "Bergen"): ("yes", "no"),
    ("count", "Six"): ("yes", "no"),
    ("count", "Five"): ("no", "yes"),
}
"""By query and first word of the document: relevant, supporting."""


class Judge(Scripted):
    """Also judges documents, by `JUDGED`."""

    def _answer(self, request: Request) -> Result:
        if request.prompt.choices != CHOICES:
            return super()._answer(request)
        word = request.prompt.text.split("Document [1]: ")[1].split()[0]
        relevant, supports = JUDGED[request.prompt.query.id, word]
        asked_support = "support the proposed answer" in request.prompt.text
        return Answer(supports if asked_support else relevant, tokens_in=7, tokens_out=1, latency=0.5)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return workspace_of(tmp_path / "w", [CAPITAL | {"kind": "city"}, COUNT | {"kind": "number"}])


def prepared(workspace: Workspace, backend: Scripted, **plan: object) -> Calibration:
    chosen = CalibrationPlan(rounds=2, split="validation", **plan)  # type: ignore[arg-type]
    return Calibration.prepare(LLMClient(workspace, backend, SETTINGS), queries_of(workspace, "validation"), chosen)


def calibrated(workspace: Workspace, backend: Scripted, **plan: object) -> SetCalibration:
    done = prepared(workspace, backend, **plan).ask(Budget())
    assert isinstance(done, SetCalibration)
    return done


def test_the_document_judged_best_gives_the_answer_and_each_arm_its_own_cost(workspace: Workspace) -> None:
    backend = Judge(SCRIPT)
    arms = ("full", "plain", "self-rag")
    ready = prepared(workspace, backend, arms=arms)
    # 2 first answers, 5 documents, two judgements of each; two rounds of two arms
    assert ready.cost().to_ask == 2 + 5 + 10 + 8
    done = ready.ask(Budget())
    assert isinstance(done, SetCalibration)
    assert done.usage.calls == 2 + 5 + 10 + 8
    costs = {name: arm.cost for name, arm in done.figures.arms.items()}
    assert {name: cost and cost.calls for name, cost in costs.items()} == {
        "full": 2 + 5 + 4,
        "plain": 2 + 4,
        "self-rag": 15,
    }
    own = costs["self-rag"]
    assert own
    assert (own.tokens_in, own.tokens_out, own.seconds) == (5 * 10 + 10 * 7, 5 * 2 + 10, 5.0)
    # capital: Norway has two yes and the surest answer; count: one yes each, equally sure, so the first
    baseline = done.figures.arms["self-rag"]
    assert (baseline.accuracy, baseline.failures) == (0.5, 0)
    with workspace.read() as con:
        found = con.execute(
            "SELECT answer, uncertainty, round FROM calibration_rounds WHERE arm = 'self-rag' ORDER BY place"
        ).fetchall()
    assert [(answer, round_) for answer, _, round_ in found] == [("Oslo", 0), ("six", 0)]
    assert [value for _, value, _ in found] == pytest.approx([1 - 2.9 / 3, 0.5])
    assert prepared(workspace, backend, arms=arms).cost().to_ask == 0
    assert type(done).from_json(json.loads(json.dumps(done.as_json()))) == done


def test_the_prompts_of_a_critique(workspace: Workspace) -> None:
    backend = Judge(SCRIPT)
    calibrated(workspace, backend, arms=("self-rag",))
    judged = [r.prompt.text for r in backend.asked if r.prompt.choices == CHOICES and "Five legs" in r.prompt.text]
    assert judged == [
        "Judge the document. Answer yes or no and nothing else.\n\nDocument [1]: Five legs.\n\n"
        "Question: How many legs?\nIs the document relevant to the question?\nAnswer:",
        "Judge the document. Answer yes or no and nothing else.\n\nDocument [1]: Five legs.\n\n"
        "Question: How many legs?\nProposed answer: five\nDoes the document support the proposed answer?\nAnswer:",
    ]


def test_yes_and_no_as_probabilities() -> None:
    scored = Answer("yes", option_logprobs=((math.log(0.6), math.log(0.5)), (math.log(0.1),)))
    assert share_of_yes(scored) == pytest.approx(0.3 / 0.4)
    far = Answer("no", option_logprobs=((-5000.0,), (-1.0,)))
    assert share_of_yes(far) == pytest.approx(0.0)
    generated = (Answer("Yes."), Answer("no"), Answer("perhaps"), Failure("request", "x"))
    assert [share_of_yes(each) for each in generated] == [1.0, 0.0, 0.0, 0.0]
    assert best_document([None, 0.5], [(Answer("yes"), Answer("yes"))] * 2) == (1, pytest.approx(1 - 2.5 / 3))
    assert best_document([None], [(Answer("yes"), Answer("yes"))]) is None


def test_figures_by_a_field_of_the_queries(workspace: Workspace) -> None:
    done = calibrated(workspace, Scripted(SCRIPT), arms=("full", "plain"), by="kind")
    found = done.figures.by
    assert found
    assert (found.field, list(found.groups)) == ("kind", ["city", "number"])
    city, number = found.groups.values()
    assert (city.queries, set(city.arms)) == (1, {"full", "plain"})
    assert (city.arms["full"].first_accuracy, city.arms["full"].accuracy) == (0.0, 1.0)  # Rome, then Oslo
    assert (number.arms["full"].first_accuracy, number.arms["plain"].accuracy) == (1.0, 0.0)  # six at round 2
    assert type(done).from_json(json.loads(json.dumps(done.as_json()))) == done
    with pytest.raises(UsageError, match="no query has a field 'colour'") as refused:
        prepared(workspace, Scripted(SCRIPT), by="colour")
    assert "kind" in refused.value.fix
