"""A scripted LLM walked through rounds: the exact prompts, scores by hand, what stands, what is kept, what it costs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.calibrate_world import CAPITAL, SCRIPT, SETTINGS, Scripted, workspace_of
from icl_curate.engine.base.errors import BudgetError, Cancelled, LLMError, UsageError
from icl_curate.engine.base.progress import CancelToken, Monitor
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Capabilities, Request, Result
from icl_curate.engine.papers.calibrate import stored as kept
from icl_curate.engine.papers.calibrate.calibration import Calibration
from icl_curate.engine.papers.calibrate.documents import queries_of, query_named
from icl_curate.engine.papers.calibrate.prompts import Case, Document, Frame, round_prompt
from icl_curate.engine.papers.calibrate.results import QueryCalibration, SetCalibration
from icl_curate.engine.papers.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.papers.calibrate.rounds import ARMS, oracle_score
from icl_curate.engine.papers.calibrate.scores import geometric, more_spread_estimator, product
from icl_curate.engine.pool.prompts import EarlierAnswer
from icl_curate.engine.pool.records import Demonstration, Query, Task
from icl_curate.engine.prompting.template import FileTemplate
from icl_curate.engine.store.workspace import Workspace

ALL = CalibrationPlan(rounds=3, split="validation")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return workspace_of(tmp_path / "w")


def calibration(workspace: Workspace, backend: Scripted, plan: CalibrationPlan = ALL, **more: Any) -> Calibration:
    asked = queries_of(workspace, "validation")
    return Calibration.prepare(LLMClient(workspace, backend, SETTINGS, **more), asked, plan)


def calibrated(workspace: Workspace, backend: Scripted, plan: CalibrationPlan = ALL) -> SetCalibration:
    return calibration(workspace, backend, plan).ask(Budget())


def texts(backend: Scripted, query: str, earlier: int) -> list[str]:
    return [
        r.prompt.text
        for r in backend.asked
        if r.prompt.query.id == query and len(r.prompt.earlier) == earlier and "Document [2]" in r.prompt.text
    ]


def test_three_rounds_with_their_exact_prompts(workspace: Workspace) -> None:
    backend = Scripted(SCRIPT)
    done = calibrated(workspace, backend)
    capital, count = done.queries
    # round 0: uncertainties 0.6 and 0.2, mean 0.4
    assert done.means == pytest.approx({"documents": 0.4})
    assert [d.score for d in capital.documents] == pytest.approx([100, 0, 100 * 0.4 / 0.7])
    assert [d.score for d in count.documents] == [50, 50]  # equally unsure
    assert [d.relevant for d in capital.documents] == [False, True, False]
    assert [r.uncertainty for r in capital.rounds] == pytest.approx([0.6, 0.3, 0.15, 0.9])
    assert [r.score for r in capital.rounds] == pytest.approx([50 + 50 / 3, 37.5, 18.75, 50 + 50 * 5 / 6])
    assert (capital.final, capital.final_round) == ("Oslo", 2)
    assert (count.final, count.final_round) == ("five", 0)  # as sure at round 1: the first stands

    (first,) = texts(backend, "capital", 0)
    assert first == (
        "Answer each question with a few words and nothing else.\n\n"
        "Document [1]: Italy\nRome is its capital.\n\n"
        "Document [2]: Norway\nOslo is its capital.\n\n"
        "Document [3]: Bergen rains.\n\n"
        "Question: What is the capital of Norway?\nAnswer:"
    )
    (third,) = texts(backend, "capital", 3)
    assert third == (
        "Answer each question with a few words and nothing else.\n"
        "The uncertainty score of each document, 0 to 100, says how far to trust it: the lower, the more likely it "
        "leads to the right answer.\n"
        "Earlier answers stand below the question with their uncertainty scores, 0 to 100: the lower, the surer. "
        "Keep an answer that is right, correct one that is wrong.\n\n"
        "Document [1] (Uncertainty Score: 100): Italy\nRome is its capital.\n\n"
        "Document [2] (Uncertainty Score: 0): Norway\nOslo is its capital.\n\n"
        "Document [3] (Uncertainty Score: 57): Bergen rains.\n\n"
        "Question: What is the capital of Norway?\n"
        "Previous Generated Answer:\n"
        "Round 1: Rome (Uncertainty Score: 67)\n"
        "Round 2: Oslo (Uncertainty Score: 38)\n"
        "Round 3: Oslo (Uncertainty Score: 19)\nAnswer:"
    )
    alone = [
        r.prompt.text for r in backend.asked if r.prompt.query.id == "count" and "Document [2]" not in r.prompt.text
    ]
    assert sorted(alone) == [
        f"Answer each question with a few words and nothing else.\n\nDocument [1]: {text}\n\n"
        "Question: How many legs?\nAnswer:"
        for text in ("Five legs.", "Six feet.")
    ]


def test_calls_are_one_and_documents_and_rounds_and_none_twice(workspace: Workspace) -> None:
    backend = Scripted(SCRIPT)
    ready = calibration(workspace, backend)
    dry = ready.cost()
    assert (dry.requests, dry.cached, dry.to_ask) == (13, 0, 13)  # (1 + 3 + 3) + (1 + 2 + 3)
    done = ready.ask(Budget())
    assert (done.usage.calls, done.usage.cached_calls, len(backend.asked)) == (13, 0, 13)
    assert len({r.prompt.text for r in backend.asked}) == 13
    after = calibration(workspace, backend).cost()
    assert (after.requests, after.cached, after.to_ask) == (13, 13, 0)
    again = calibrated(workspace, backend)
    assert (again.usage.calls, again.usage.cached_calls, len(backend.asked)) == (13, 13, 13)
    assert again.queries == done.queries
    assert type(done).from_json(json.loads(json.dumps(done.as_json()))) == done


@pytest.mark.parametrize("early", [{"settle": 1.0}, {"above": 50.0}, {"until_correct": True}])
def test_rounds_that_may_end_early_are_in_the_upper_end_of_the_price_alone(
    workspace: Workspace, early: dict[str, Any]
) -> None:
    whole = calibration(workspace, Scripted(SCRIPT)).cost()
    cost = calibration(workspace, Scripted(SCRIPT), replace(ALL, **early)).cost()
    assert [high for _, high in (cost.tokens_in, cost.tokens_out)] == [whole.tokens_in[1], whole.tokens_out[1]]
    assert cost.tokens_in[0] < whole.tokens_in[0]
    assert cost.tokens_out[0] < whole.tokens_out[0]


def test_every_prompt_answer_and_score_is_kept(workspace: Workspace) -> None:
    backend = Scripted(SCRIPT)
    done = calibrated(workspace, backend)
    cases = kept.stored_cases(workspace, done.run, "full")
    asked = {tuple((m.role, m.content) for m in r.prompt.messages) for r in backend.asked}
    for case, told in zip(cases, done.queries, strict=True):
        assert [(t.round, t.answer, t.uncertainty, t.score, t.correct) for t in case.rounds] == [
            (t.round, t.answer, t.uncertainty, t.score, t.correct) for t in told.rounds
        ]
        assert {t.messages for t in case.rounds} <= asked
        assert [(d.text, d.score) for d in case.documents] == [(d.text, d.score) for d in told.documents]
    with workspace.read() as con:
        finals = con.execute("SELECT final FROM calibrations ORDER BY place").fetchall()
        prompts = con.execute("SELECT count(DISTINCT prompt) FROM calibration_documents").fetchone()
    assert (finals, prompts) == ([(2,), (0,)], (5,))


def test_an_interrupted_walk_goes_on_where_it_stopped(workspace: Workspace) -> None:
    for stop in (3, 2, 2):
        cancel = CancelToken()
        backend = Scripted(SCRIPT, cancel=cancel, stop_after=stop)
        with pytest.raises(Cancelled):
            calibration(workspace, backend, monitor=Monitor(cancel=cancel)).ask(Budget())
    with workspace.read() as con:
        answered = con.execute("SELECT count(*) FROM llm_calls").fetchone()
        assert con.execute("SELECT DISTINCT status FROM runs").fetchall() == [("interrupted",)]
    backend = Scripted(SCRIPT)
    done = calibrated(workspace, backend)
    assert answered is not None
    assert 7 <= answered[0] < 13
    assert len(backend.asked) == 13 - answered[0]
    assert done.queries == calibrated(workspace_of(workspace.path.parent / "other"), Scripted(SCRIPT)).queries


def test_a_budget_stops_before_it_is_exceeded(workspace: Workspace) -> None:
    backend = Scripted(SCRIPT)
    with pytest.raises(BudgetError):
        calibration(workspace, backend).ask(Budget(max_calls=9))
    assert len(backend.asked) == 9


def test_rounds_stop_early_once_answer_and_score_have_settled(workspace: Workspace) -> None:
    backend = Scripted(SCRIPT)
    done = calibrated(workspace, backend, replace(ALL, settle=1.0))
    capital, count = done.queries
    assert [t.round for t in count.rounds] == [0, 1]  # "five" again, just as sure
    assert [t.round for t in capital.rounds] == [0, 1, 2, 3]  # "Oslo" again, but surer by 19 points
    assert done.figures.arms["full"].rounds[3].stopped == 1
    assert done.figures.arms["full"].rounds[3].accuracy == 0.5  # the stopped answer is carried on


def test_a_query_that_is_typed_has_the_fields_it_is_given(workspace: Workspace) -> None:
    typed = query_named(workspace, "capital", fields={"tier": "gold", "output": "Oslo"})
    assert (typed.input, typed.row, typed.fields) == ("capital", None, {"tier": "gold"})


def test_a_single_query_is_scored_about_the_mean_of_a_set_walked_before(workspace: Workspace) -> None:
    def single(backend: Scripted) -> QueryCalibration:
        asked = [query_named(workspace, "capital")]
        return Calibration.prepare(LLMClient(workspace, backend, SETTINGS), asked, replace(ALL, split="")).ask(Budget())

    fresh = single(Scripted(SCRIPT))
    assert fresh.mean_known is False
    assert [r.score for r in fresh.query.rounds] == pytest.approx([60, 30, 15, 90])  # in per cent
    known = calibrated(workspace, Scripted(SCRIPT))
    backend = Scripted(SCRIPT)
    again = single(backend)
    assert again.mean_known is True
    assert again.query.rounds == known.queries[0].rounds
    assert backend.asked == []
    assert kept.mean_of(workspace, '{"spec":"another"}', "product", "documents") is None
    assert type(again).from_json(json.loads(json.dumps(again.as_json()))) == again


def test_the_mean_of_the_latest_set_stands(workspace: Workspace) -> None:
    calibrated(workspace, Scripted(SCRIPT))
    one = Calibration.prepare(
        LLMClient(workspace, Scripted(SCRIPT), SETTINGS), queries_of(workspace, "validation", 1), ALL
    )
    assert one.ask(Budget()).means == pytest.approx({"documents": 0.6})
    found = kept.mean_of(workspace, one.identity, "product", "documents")
    assert found is not None
    assert found[:2] == (pytest.approx(0.6), 1)


def test_the_mean_of_other_prompts_is_not_used(workspace: Workspace) -> None:
    calibrated(workspace, Scripted(SCRIPT))

    def single(**changed: Any) -> bool:
        llm = LLMClient(workspace, Scripted(SCRIPT), replace(SETTINGS, **changed))
        done = Calibration.prepare(llm, [query_named(workspace, "capital")], replace(ALL, split="")).ask(Budget())
        assert isinstance(done, QueryCalibration)
        return done.mean_known

    assert single()
    assert single(k=2, method="random")  # over documents, no demonstrations are shown
    assert not single(instruction="Answer in one word.")
    assert not single(answer_prefix="The answer is")


def test_rounds_ask_after_the_prefix_of_answers() -> None:
    template = FileTemplate(answer_prefix="The answer is")
    frame, query = Frame(Task("open"), template), Query("capital of Norway?")
    shot = Demonstration(0, "p1", "capital of Sweden?", "Stockholm", "s")
    earlier = [EarlierAnswer("Oslo", 12)]
    for over, document in (
        ("documents", Document("d", "Oslo is a city.")),
        ("demonstrations", Document("p1", "", demonstration=shot)),
        ("steps", Document("1", "Norway is a country.")),
    ):
        for scores in ([], [30]):
            prompt = round_prompt(Case(query, (document,), over), frame, scores, earlier if scores else [])
            last = prompt.messages[-1].content
            assert last.endswith("Answer: The answer is") and last.count("The answer is") == 1
            assert prompt.text.endswith(last)


def test_a_template_shows_scores_itself_or_rounds_have_the_papers_layout() -> None:
    shots = [Demonstration(i, f"p{i}", f"capital {i}?", f"city {i}", "s") for i in range(2)]
    documents = tuple(Document(shot.id, "", demonstration=shot) for shot in shots)
    case = Case(Query("capital of Norway?"), documents, "demonstrations")
    own = "Cities.\n{% for shot in shots %}{{ shot.mark }}{{ shot.input }} {{ shot.answer }}\n{% endfor %}"
    marked = Frame(Task("open"), FileTemplate(own + "{{ query.input }}{{ query.earlier }}"))
    [_, turn] = round_prompt(case, marked, [10, 30], [EarlierAnswer("Oslo", 12)]).messages
    assert turn.content == (
        "Cities.\nExample [1] (Uncertainty Score: 30)\ncapital 1? city 1\nExample [2] (Uncertainty Score: 10)\n"
        "capital 0? city 0\ncapital of Norway?\nPrevious Generated Answer:\nRound 1: Oslo (Uncertainty Score: 12)"
    )
    plain = FileTemplate("{% system %}Name cities.{% endsystem %}{% user %}{{ query.input }}{% enduser %}")
    for scores in ([], [10, 30]):
        system, *turns = round_prompt(case, Frame(Task("open"), plain), scores).messages
        assert system.content.startswith("Name cities.") and turns[-1].content.endswith("Answer:") and len(turns) == 5


def test_demonstrations_are_scored_where_a_query_brings_no_documents(tmp_path: Path) -> None:
    pool = [
        {"id": "p1", "input": "capital of Sweden?", "output": "Stockholm"},
        {"id": "p2", "input": "capital of Norway, please?", "output": "Oslo"},
        *({"id": f"p{i}", "input": f"rhyme number {i}?", "output": f"hat {i}"} for i in range(3, 9)),
    ]
    bare = {key: value for key, value in CAPITAL.items() if key != "context"}
    workspace = workspace_of(tmp_path / "w", [bare], pool)

    class Shots(Scripted):
        def _answer(self, request: Any) -> Any:
            prompt = request.prompt
            script = {"p1": 0.5, "p2": 0.9}
            alone = prompt.demonstrations[0].id if len(prompt.demonstrations) == 1 else ""
            probability = script.get(alone, 0.75 - 0.05 * len(prompt.earlier))
            self.script = {("capital", len(prompt.earlier)): ("Oslo", probability)}
            return super()._answer(request)

    backend = Shots({})
    settings = replace(SETTINGS, k=2, order="best-last")
    plan = CalibrationPlan(rounds=1)
    done = Calibration.prepare(LLMClient(workspace, backend, settings), queries_of(workspace, "validation"), plan).ask(
        Budget()
    )
    assert [(d.id, d.score, d.relevant) for d in done.query.documents] == [
        ("p2", 0.0, True),
        ("p1", 100.0, False),
    ]
    assert backend.asked[-1].prompt.text == (
        "Answer each question with a few words and nothing else.\n"
        "The uncertainty score of each example, 0 to 100, says how far to trust it: the lower, the more likely it "
        "leads to the right answer.\n"
        "Earlier answers stand below the question with their uncertainty scores, 0 to 100: the lower, the surer. "
        "Keep an answer that is right, correct one that is wrong.\n\n"
        "Example [1] (Uncertainty Score: 100)\nQuestion: capital of Sweden?\nAnswer: Stockholm\n\n"
        "Example [2] (Uncertainty Score: 0)\nQuestion: capital of Norway, please?\nAnswer: Oslo\n\n"
        "Question: What is the capital of Norway?\nPrevious Generated Answer:\n"
        "Round 1: Oslo (Uncertainty Score: 25)\nAnswer:"
    )
    assert backend.asked[-1].prompt.shot_scores == (100, 0)


@pytest.mark.parametrize(("arm", "mark"), [("answers", " (Uncertainty Score: 50)"), ("plain", "")])
def test_demonstrations_without_scores_are_numbered_as_documents_are(tmp_path: Path, arm: str, mark: str) -> None:
    pool = [
        {"id": "p1", "input": "capital of Sweden?", "output": "Stockholm"},
        {"id": "p2", "input": "capital of Norway, please?", "output": "Oslo"},
    ]
    bare = {key: value for key, value in CAPITAL.items() if key != "context"}
    workspace = workspace_of(tmp_path / "w", [bare], pool)
    backend = Scripted({("capital", 0): ("Rome", 0.5), ("capital", 1): ("Oslo", 0.5)})
    plan = CalibrationPlan(rounds=1, arms=(arm,))
    Calibration.prepare(LLMClient(workspace, backend, SETTINGS), queries_of(workspace, "validation"), plan).ask(
        Budget()
    )
    text = backend.asked[-1].prompt.text
    assert text.endswith(
        "Example [1]\nQuestion: capital of Sweden?\nAnswer: Stockholm\n\n"
        "Example [2]\nQuestion: capital of Norway, please?\nAnswer: Oslo\n\n"
        "Question: What is the capital of Norway?\nPrevious Generated Answer:\n"
        f"Round 1: Rome{mark}\nAnswer:"
    )
    assert "The uncertainty score of each" not in text
    assert len(backend.asked) == 2  # no example alone


def test_arms_show_what_they_say(workspace: Workspace) -> None:
    names = ("full", "answers", "plain", "oracle", "sampling", "vote")
    script = dict(SCRIPT) | {
        ("capital", "sample 1"): ("Oslo", 0.3),
        ("capital", "sample 2"): ("Oslo", 0.2),
        ("capital", "sample 3"): ("Bergen", 0.5),
    }
    backend = Scripted(script)
    done = calibrated(workspace, backend, replace(ALL, arms=names))
    assert len(backend.asked) == 13 + 4 * 6  # the two that sample share their samples
    capital = {
        name: query_rounds for name, query_rounds in _finals(workspace, done.run).items() if name[1] == "capital"
    }
    assert {name: final for (name, _), final in capital.items()} == {
        "full": "Oslo", "answers": "Oslo", "plain": "Oslo", "oracle": "Oslo", "sampling": "Bergen", "vote": "Oslo",
    }  # fmt: skip
    by_text = [r.prompt for r in backend.asked if r.prompt.query.id == "capital" and len(r.prompt.earlier) == 2]
    shows = {(bool(p.document_scores), p.earlier[0].score is not None) for p in by_text}
    assert shows == {(True, True), (False, True), (False, False)}
    plain = next(p for p in by_text if p.earlier[0].score is None)
    assert "Uncertainty Score" not in plain.text
    (oracle,) = [p for p in by_text if p.document_scores and p.document_scores[1] not in (0, None)]
    assert [score <= 20 for score in oracle.document_scores if score is not None] == [False, True, False]
    assert all(not 20 < (score or 0) < 80 for score in oracle.document_scores)
    assert [said.score is not None and said.score <= 20 for said in oracle.earlier] == [False, True]  # Rome, Oslo
    draws = {r.sampling.repeat for r in backend.asked if r.sampling.temperature > 0}
    assert draws == {1, 2, 3}
    assert {r.sampling.temperature for r in backend.asked} == {0.0, 0.7}


def _finals(workspace: Workspace, run: int) -> Mapping[tuple[str, str], str]:
    with workspace.read() as con:
        rows = con.execute(
            """
            SELECT c.arm, d.id, r.answer FROM calibrations c JOIN demonstrations d ON d.row = c.query
              JOIN calibration_rounds r ON r.run = c.run AND r.arm = c.arm AND r.place = c.place AND r.round = c.final
             WHERE c.run = ?
            """,
            [run],
        ).fetchall()
    return {(arm, query): answer for arm, query, answer in rows}


def test_self_consistency_needs_no_log_probabilities(workspace: Workspace) -> None:
    backend = Scripted(SCRIPT, logprobs=False)
    with pytest.raises(LLMError, match="log-probabilities") as refused:
        calibration(workspace, backend)
    assert "self-consistency" in refused.value.fix
    assert backend.asked == []
    script = dict(SCRIPT)
    for i, said in enumerate(["Rome", "Oslo", "Oslo", "Rome"], 1):
        script["capital", f"sample {i}"] = (said, 0.5)
    plan = replace(ALL, rounds=1, estimator="self-consistency", samples=4)
    done = calibrated(workspace, Scripted(script, logprobs=False), plan)
    assert done.usage.calls == (2 + 5 + 2) * (1 + 4)
    assert [r.uncertainty for r in done.queries[0].rounds] == [0.5, 0.5]
    assert [d.uncertainty for d in done.queries[0].documents] == [0.5, 0.5, 1.0]


def test_a_call_that_fails_ends_its_query_and_is_told(workspace: Workspace) -> None:
    script = {
        key: value for key, value in SCRIPT.items() if key not in {("capital", 0), ("count", 2), ("count", "Six")}
    }
    done = calibrated(workspace, Scripted(script))
    capital, count = done.queries
    assert (capital.final, capital.rounds) == (None, ())
    assert "nothing is written for capital, 0" in capital.failure
    assert [r.round for r in count.rounds] == [0, 1]
    assert [d.score for d in count.documents] == [None, 50.0]
    assert done.figures.arms["full"].failures == 2
    assert done.figures.arms["full"].accuracy == 0.5  # a query without an answer is wrong
    assert done.means == pytest.approx({"documents": 0.2})


def test_prompts_too_long_are_cut_and_that_is_said(workspace: Workspace) -> None:
    notes: list[str] = []
    settings = replace(SETTINGS, context_tokens=400, max_tokens=30)
    long = Query("Which?", context="\n\n".join(["Title\n" + "word " * 300, "short text"]), answers=("x",), id="long")
    script = {("long", "Title"): ("x", 0.5), ("long", "short"): ("x", 0.6)} | {
        ("long", i): ("x", 0.5) for i in range(3)
    }
    backend = Scripted(script)
    plan = CalibrationPlan(rounds=2)
    ready = Calibration.prepare(
        LLMClient(workspace, backend, settings, Monitor(lambda event: notes.append(event.note))), [long], plan
    )
    ready.ask(Budget())
    longest = max(backend.count_tokens(r.prompt) for r in backend.asked)
    assert 150 < longest <= 400 - 30
    assert any("truncated to fit" in note for note in notes)
    assert all("short text" in r.prompt.text for r in backend.asked if "Document [2]" in r.prompt.text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arms": ("ful",)}, "unknown arm"),
        ({"estimator": "products"}, "did you mean 'product'"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_asked(
    workspace: Workspace, change: dict[str, Any], said: str
) -> None:
    backend = Scripted(SCRIPT)
    with pytest.raises(UsageError, match=said):
        calibration(workspace, backend, replace(ALL, **change))
    with pytest.raises(UsageError, match="reference answers"):
        Calibration.prepare(LLMClient(workspace, backend, SETTINGS), [Query("q?")], CalibrationPlan(arms=("oracle",)))
    with pytest.raises(UsageError, match="has no documents"):
        Calibration.prepare(LLMClient(workspace, backend, SETTINGS), [Query("q?")], CalibrationPlan(over="documents"))
    with pytest.raises(UsageError, match="no test queries"):
        Calibration.prepare(
            LLMClient(workspace, backend, SETTINGS), queries_of(workspace, "test"), replace(ALL, split="test")
        )
    assert backend.asked == []


def test_a_dry_run_sends_nothing_not_even_a_probe(workspace: Workspace) -> None:
    class Silent(Scripted):
        async def probe(self) -> Any:
            raise AssertionError("probed")

    assert calibration(workspace, Silent(SCRIPT), dry_run=True).cost().to_ask == 13


def test_all_names_every_arm(workspace: Workspace) -> None:
    names = tuple(name for name in ARMS if name != "relevance")
    assert calibration(workspace, Scripted(SCRIPT), replace(ALL, arms=names)).plan.arms == names


class Scoring(Scripted):
    """Scores two options: log-odds of the first grow with the number of earlier answers; generates when sampling."""

    async def probe(self) -> Capabilities:
        return Capabilities(logprobs=True, scoring=True)

    def _answer(self, request: Request) -> Result:
        if not request.score:
            return Answer("(B)", tokens=("(B)",), logprobs=(math.log(0.6),))
        odds = 3.0 + len(request.prompt.earlier)
        return Answer("red", option_logprobs=((math.log(0.5 * odds),), (math.log(0.5),)))


def test_options_are_scored_and_uncertainty_is_what_the_best_leaves(tmp_path: Path) -> None:
    asked = {"id": "c", "input": "Which colour?", "output": "red", "options": ["red", "blue"], "context": "A.\n\nB."}
    pool = [{"input": f"q{i}", "output": "red", "options": ["red", "blue"]} for i in range(3)]
    workspace = workspace_of(tmp_path / "w", [asked], pool)
    backend = Scoring({})
    done = calibrated(workspace, backend, replace(ALL, rounds=2, arms=("full", "sampling")))
    told = done.queries[0]
    assert [t.uncertainty for t in told.rounds] == pytest.approx([1 / 4, 1 / 5, 1 / 6])
    assert (told.final, told.final_round) == ("red", 2)
    last = next(request for request in backend.asked if len(request.prompt.earlier) == 2)
    assert "(A) red\n(B) blue\nPrevious Generated Answer:\nRound 1: red (" in last.prompt.text
    # what was scored cannot be a sample among samples: the baseline is the samples alone
    assert [row.round for row in done.figures.arms["sampling"].rounds] == [1, 2]
    assert (done.figures.arms["full"].accuracy, done.figures.arms["sampling"].accuracy) == (1.0, 0.0)


def test_auto_takes_the_estimator_that_tells_answers_apart() -> None:
    short = [Answer("a", ("a",), (-0.1,)), Answer("b", ("b",), (-1.5,))]
    long = [Answer("a b c", ("a",) * 30, (-0.3,) * 30), Answer("d e f", ("d",) * 40, (-0.2,) * 40)]
    scored = [Answer("a", option_logprobs=((-40.0,), (-40.0,)))] * 9
    assert more_spread_estimator(short) == "product"
    assert more_spread_estimator(long) == "geometric"
    assert more_spread_estimator([*short * 3, *long[:1], *scored]) == "product"
    assert more_spread_estimator([]) == "product"
    # products of long answers are all 1, their geometric means are not
    assert all(value is not None and value > 0.999 for value in (product(a, (), ()) for a in long))
    assert len({geometric(a, (), ()) for a in long}) == 2


def test_auto_walks_as_the_estimator_it_chose(workspace: Workspace) -> None:
    chosen = calibrated(workspace, Scripted(SCRIPT), replace(ALL, estimator="auto"))
    named = calibrated(workspace, Scripted(SCRIPT), replace(ALL, estimator=chosen.estimator))
    assert chosen.estimator in ("product", "geometric")
    assert [q.rounds for q in chosen.queries] == [q.rounds for q in named.queries]


def test_sure_first_answers_take_no_further_round_and_right_ones_end(workspace: Workspace) -> None:
    everything = calibrated(workspace, Scripted(SCRIPT), ALL)
    firsts = [query.rounds[0].score for query in everything.queries]
    gate = (min(firsts) + max(firsts)) / 2
    gated = calibrated(workspace, Scripted(SCRIPT), replace(ALL, above=gate))
    for before, query in zip(everything.queries, gated.queries, strict=True):
        assert len(query.rounds) == (1 if before.rounds[0].score < gate else len(before.rounds))
    ended = calibrated(workspace, Scripted(SCRIPT), replace(ALL, until_correct=True))
    for before, query in zip(everything.queries, ended.queries, strict=True):
        marks = [round_.correct for round_ in before.rounds]
        assert len(query.rounds) == (marks.index(True) + 1 if True in marks else len(marks))
    assert ended.usage.calls <= everything.usage.calls


def test_an_answer_that_repeats_its_prompt_is_never_the_surest() -> None:
    echoed = Answer("Document", ("Document",), (-0.01,), usable=False)
    assert product(echoed, (), ()) == geometric(echoed, (), ()) == 1.0
    cut_off = replace(echoed, finish="length")
    assert product(cut_off, (), ()) == pytest.approx(1 - math.exp(-0.01))


def test_oracle_scores_fill_their_two_ranges() -> None:
    scores = {
        good: [oracle_score(good, 0, Query(f"query {i}"), "document 0") for i in range(2_000)] for good in (True, False)
    }
    assert 0 <= min(scores[True]) < 0.1 and 19.9 < max(scores[True]) <= 20
    assert 80 <= min(scores[False]) < 80.1 and 99.9 < max(scores[False]) <= 100
    assert oracle_score(True, 1, Query("query 0"), "document 0") != scores[True][0]
