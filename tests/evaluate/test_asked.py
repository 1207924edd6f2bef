"""Methods that ask the LLM while they select: the LLM's own order (rerank) and the vote of summaries (sure)."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.asked_world import SETTINGS, Copy, Scripted, copier, evaluate, make_world, outcomes, texts
from factories.servers import Call, Reply, Server, error, page
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.base.errors import Cancelled
from icl_curate.engine.base.progress import CancelToken, Monitor
from icl_curate.engine.baselines import listwise, sure
from icl_curate.engine.http import refusals
from icl_curate.engine.llm.loop import close
from icl_curate.engine.llm.types import Answer, Capabilities, Failure, LLMSettings, Request
from icl_curate.engine.pool.records import Demonstration, Query
from icl_curate.engine.prompting.template import AUTO, question_of
from icl_curate.engine.store.workspace import Workspace

# rerank


@pytest.mark.parametrize("count", range(61))
def test_a_perfect_sorter_brings_the_best_to_the_top_from_any_order(count: int) -> None:
    rng = np.random.default_rng(count)
    orders = [list(range(count)), list(range(count))[::-1], *(rng.permutation(count).tolist() for _ in range(20))]
    for order in orders:
        for start in listwise.windows(count):
            window = order[start : start + listwise.WINDOW]
            assert len(window) > 1
            reply = " > ".join(f"[{place + 1}]" for place in np.argsort(window))
            order[start : start + listwise.WINDOW] = listwise.permuted(window, Answer(reply))
        assert order[: listwise.STEP] == list(range(min(count, listwise.STEP)))
        assert sorted(order) == list(range(count))


PIECES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["[", "]", " > ", ", ", "\n", "the best is ", "٣", "²", "-1"]),
    st.integers(-5, 40).map(str),
    st.integers(-5, 40).map("[{}]".format),
)


@given(st.lists(PIECES, max_size=30).map("".join), st.integers(0, 25))
def test_any_reply_gives_a_permutation(reply: str, count: int) -> None:
    rows = [100 + i for i in range(count)]
    assert sorted(listwise.permuted(rows, Answer(reply))) == rows


@pytest.mark.parametrize(
    ("reply", "order"),
    [
        ("[2] > [4] > [1] > [3]", "bdac"),
        ("2 > 4", "bdac"),
        ("4, 2, 3, 1", "dbca"),
        ("[3]>[3]>[1]>[3]", "cabd"),
        ("[9] > [0] > [2]", "bacd"),
        ("Of the 4 examples, I would put [3] first, then [1].", "cabd"),
        ("1. [4]\n2. [2]\n3. [1]\n4. [3]", "dbac"),
        ("They are all equally helpful.", "abcd"),
        ("9" * 5000 + " 2", "bacd"),  # more digits than Python reads as a number
        ("", "abcd"),
    ],
)
def test_replies_are_read_as_meant(reply: str, order: str) -> None:
    assert "".join("abcd"[i] for i in listwise.permuted(range(4), Answer(reply))) == order
    assert listwise.permuted(range(4), Failure("context", "too long")) == [0, 1, 2, 3]


def test_long_demonstrations_are_cut_but_keep_their_answers() -> None:
    shots = [Demonstration(i, f"d{i}", f"start{i} " + "filler " * 900, f"answer{i}", "s") for i in range(3)]
    request = listwise.listwise_request(Query("which?"), shots, partial(question_of, AUTO), words=50)
    turns = [m.content for m in request.prompt.messages if m.role == "user"]
    assert len(turns) == 5 and all("which?" in turns[i] for i in (0, -1))
    for i, turn in enumerate(turns[1:-1]):
        assert turn.startswith(f"[{i + 1}] Question: start{i}") and turn.endswith(f"Answer: answer{i}")
        assert turn.count("filler") < 50


@pytest.fixture(scope="module")
def _marked_world(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    kinds = ["golden"] * 8 + ["plain"] * 52
    pool = [
        {"id": f"{kind}-{i}", "input": text, "output": f"{kind} answer {i}"}
        for i, (kind, text) in enumerate(zip(kinds, texts(60, 1), strict=True))
    ]
    test = [{"id": f"q{i}", "input": text, "output": "yes"} for i, text in enumerate(texts(12, 2))]
    return make_world(tmp_path_factory.mktemp("marked") / "w", pool, test)


@pytest.fixture
def scored_runs(_marked_world: Workspace, tmp_path: Path) -> Copy:
    """The output says whether a demonstration helps; the texts, which BM25 sees, do not."""
    return copier(_marked_world, tmp_path)


def _ranks(messages: list[str]) -> str:
    """The golden ones first, read from the numbered turns as an LLM would."""
    turns = [found for text in messages if (found := re.match(r"\[(\d+)\] .*?Answer: (\w+)", text, re.DOTALL))]
    return " > ".join(f"[{turn[1]}]" for turn in sorted(turns, key=lambda turn: turn[2] != "golden"))


def _asks_to_rank(request: Request) -> bool:
    return request.prompt.messages[-1].content.startswith("Put the")


def _right_after_gold(request: Request) -> str:
    """Ranks golden ones first; answers rightly with a golden one next to the query."""
    if _asks_to_rank(request):
        return _ranks([m.content for m in request.prompt.messages])
    *_, last = request.prompt.demonstrations or [None]
    return "yes" if last and last.output.startswith("golden") else "no"


def test_a_helpful_demonstration_is_put_first_and_helps(scored_runs: Copy) -> None:
    workspace = scored_runs("w")
    backend = Scripted(_right_after_gold)
    table = evaluate(workspace, backend, "bm25", "rerank")
    row = table.methods["rerank"]
    kept = outcomes(workspace, table.run, "rerank")
    candidates = {r.prompt.query.id: [d.id for d in r.prompt.demonstrations] for r in backend.asked if _asks_to_rank(r)}
    assert len(candidates) == 12 and {len(shown) for shown in candidates.values()} == {listwise.CANDIDATES}
    for query, ids in candidates.items():
        assert kept[query]["shots"] == sorted(ids, key=lambda name: not name.startswith("golden"))[: SETTINGS.k]
    with_gold = [any(name.startswith("golden") for name in ids) for ids in candidates.values()]
    assert row.accuracy == np.mean(with_gold) > table.methods["bm25"].accuracy
    assert (row.usage.calls, row.shots, row.usage.failures) == (24, SETTINGS.k, 0)
    same = sum(found["shots"] == kept[q]["shots"] for q, found in outcomes(workspace, table.run, "bm25").items())
    assert len(backend.asked) == 12 + 12 + 24 - same  # zero, bm25, and two calls a query


def test_more_candidates_than_a_window_are_asked_for_in_several(scored_runs: Copy) -> None:
    backend = Scripted(_right_after_gold)
    settings = replace(SETTINGS, k=45)
    table = evaluate(scored_runs("w"), backend, "rerank", settings=settings)
    assert table.methods["rerank"].usage.calls == 12 * (len(listwise.windows(45)) + 1) == 12 * 5
    golden = [
        [d.id.startswith("golden") for d in r.prompt.demonstrations[::-1]]
        for r in backend.asked
        if not _asks_to_rank(r) and r.prompt.demonstrations
    ]
    assert all(shown == sorted(shown, reverse=True) for shown in golden)


def test_a_short_context_shortens_the_examples_before_it_fails(tmp_path: Path) -> None:
    pool = [
        {"id": f"golden-{i}", "input": text + " filler" * 200, "output": f"golden {i}"}
        for i, text in enumerate(texts(24, 1))
    ]
    workspace = make_world(tmp_path / "w", pool, [{"id": "q", "input": texts(1, 9)[0], "output": "yes"}])
    limit = 1500

    def say(request: Request) -> str | Failure:
        tokens = len(request.prompt.text.split()) + request.sampling.max_tokens
        return Failure("context", "too long") if tokens > limit else _right_after_gold(request)

    backend = Scripted(say, Capabilities(logprobs=False, scoring=False, context_tokens=limit))
    table = evaluate(workspace, backend, "rerank")
    (ranking,) = [r for r in backend.asked if _asks_to_rank(r)]
    assert len(ranking.prompt.text.split()) > limit / 2
    assert table.methods["rerank"].usage.failures == 0


def test_a_failed_ranking_keeps_the_order_and_is_counted(scored_runs: Copy) -> None:
    workspace = scored_runs("w")

    def say(request: Request) -> str | Failure:
        fails = _asks_to_rank(request) and request.prompt.query.id == "q3"
        return Failure("request", "no") if fails else _right_after_gold(request)

    table = evaluate(workspace, Scripted(say), "bm25", "rerank")
    assert table.methods["rerank"].usage.failures == 1
    assert table.methods["bm25"].usage.failures == 0
    shots = {name: outcomes(workspace, table.run, name)["q3"]["shots"] for name in ("bm25", "rerank")}
    assert shots["bm25"] == shots["rerank"]


class RankingServer(Server):
    """Ranks and answers as `_right_after_gold` over HTTP."""

    def chat_reply(self, call: Call) -> dict[str, Any]:
        reply = super().chat_reply(call)
        said = [str(message["content"]) for message in call.body["messages"]]
        ranks = said[-1].startswith("Put the")
        answer = _ranks(said) if ranks else "yes" if said[-2:-1] and said[-2].startswith("golden") else "no"
        reply["choices"][0]["message"]["content"] = answer
        return reply


def test_rerank_over_http_whatever_happens_on_the_way(scored_runs: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST", 0.01)
    truthful = scored_runs("a")
    wanted = evaluate(truthful, Scripted(_right_after_gold), "rerank").methods["rerank"]
    faults: list[Reply | str] = [
        error(500, "overloaded"),
        error(429, "slow down", headers={"retry-after-ms": "10"}),
        page(),
        "drop",
    ]
    lost = texts(12, 2)[5]

    def fault(server: Server, call: Call, seen: int) -> Reply | str | None:
        if not any(word in call.text for word in texts(1, 1)[0].split()):
            return None  # a probe
        if "Put the" in call.text and call.text.endswith(lost):
            return error(400, "this one is never taken")
        return faults[len(call.text) % len(faults)] if seen == 0 else None

    workspace = scored_runs("b")
    with RankingServer(fault=fault) as server:
        backend = OpenAIServer("stub", LLMSettings(base_url=server.url))
        try:
            table = evaluate(workspace, backend, "rerank")
            answered = Counter(call.text for call in server.calls if call.answered)
            again = evaluate(workspace, backend, "rerank")
            answered_again = Counter(call.text for call in server.calls if call.answered)
        finally:
            close(backend)
    row = table.methods["rerank"]
    assert (row.usage.calls, row.usage.failures) == (24, 1)
    assert answered == answered_again and again.methods["rerank"].accuracy == row.accuracy
    truth = outcomes(truthful, 1, "rerank")
    kept = outcomes(workspace, table.run, "rerank")
    assert {query: kept[query] for query in kept if query != "q5"} == {q: truth[q] for q in truth if q != "q5"}
    assert abs(row.accuracy - wanted.accuracy) <= 1 / 12


# sure


def _vote(valid: tuple[bool | None, bool | None], choices: tuple[int | None, int | None]) -> int:
    """One-hot averages, as SuRe's own: 0 for the first candidate, 1 for the second."""
    one_hot = {0: np.array([1.0, 0.0]), 1: np.array([0.0, 1.0])}
    first, second = choices
    unturned = [first, None if second is None else {0: 1, 1: 0}[second]]
    agreed = unturned[0] is not None and unturned[0] == unturned[1]
    share = one_hot[unturned[0]] if agreed and unturned[0] is not None else np.array([0.5, 0.5])
    holds = [place for place in (0, 1) if valid[place] is True]
    if len(holds) == 1:
        share = (share + one_hot[holds[0]]) / 2
    return int(share[1] > share[0])


VERDICTS: list[bool | None] = [True, False, None]
CHOICES: list[int | None] = [0, 1, None]
COMBINATIONS = list(itertools.product(itertools.product(VERDICTS, repeat=2), itertools.product(CHOICES, repeat=2)))


def test_the_vote_over_all_verdicts_and_choices() -> None:
    for valid, choices in COMBINATIONS:
        assert sure.voted(valid, choices) == _vote(valid, choices), (valid, choices)


@pytest.mark.parametrize(
    ("reply", "names"),
    [
        ("(a) Paris (b) London", ["Paris", "London"]),
        ("(a) Paris; (b) London.", ["Paris", "London"]),
        ("(a) Paris\n(b) London\n\nBoth are capitals.", ["Paris", "London"]),
        ("**(a)** Paris\n**(b)** London", ["Paris", "London"]),
        ("The two are (a) Paris and (b) London.", ["Paris", "London"]),
        ("(A) Paris, (B) London", ["Paris", "London"]),
        ("(a) (B) blue (b) (C) green", ["(B) blue", "(C) green"]),
        ("(a) Paris (b) London (c) Rome", ["Paris", "London"]),
        ("(a) Paris (b) Paris", ["Paris"]),
        ("(a) Paris (b)", ["Paris"]),
        ("(a) Paris", ["Paris"]),
        ("(b) London", ["London"]),
        ("(a) (b)", []),
        ("It can only be Paris", ["It can only be Paris"]),
        ("Paris.", ["Paris"]),
        ("", []),
        (" \n", []),
    ],
)
def test_candidates_are_read_from_the_reply(reply: str, names: list[str]) -> None:
    assert sure.candidates_in(Answer(reply)) == names


@given(st.text(max_size=60) | st.lists(PIECES | st.sampled_from(["(a)", "(b)", "(c)", "(A)"]), max_size=9).map("".join))
def test_any_reply_gives_two_candidates_at_most(reply: str) -> None:
    found = sure.candidates_in(Answer(reply))
    assert len(found) <= 2 and len(set(found)) == len(found)
    assert all(name.strip() and name in reply for name in found)


STAGES = {"Name the two": "candidates", "Sum up": "summary", "Does the": "check", "Which summary": "choice"}


def _stage(request: Request) -> str:
    text = request.prompt.messages[-1].content
    return next((name for said, name in STAGES.items() if f"\n\n{said}" in text), "answer")


def _place(request: Request) -> int:
    """Which of the pair a prompt is about: the candidate, or the summary that stands first."""
    return int("beta" in re.sub(r".*(Proposed answer|Summary 1):", "", request.prompt.text, flags=re.DOTALL)[:7])


@pytest.fixture(scope="module")
def _open_world(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    pool = [{"id": f"d{i}", "input": text, "output": f"out {i}"} for i, text in enumerate(texts(40, 3))]
    test = [
        {"id": f"q{i}", "input": f"{text} {i}", "output": "beta of the two"}
        for i, text in enumerate(texts(len(COMBINATIONS), 4))
    ]
    return make_world(tmp_path_factory.mktemp("open") / "w", pool, test)


@pytest.fixture
def open_world(_open_world: Workspace, tmp_path: Path) -> Copy:
    """A query for each combination of verdicts and choices."""
    return copier(_open_world, tmp_path)


def _says(combination: Callable[[Request], Any]) -> Callable[[Request], str]:
    """An LLM whose verdicts and choices a combination gives."""

    def say(request: Request) -> str:
        stage, place = _stage(request), _place(request)
        valid, choices = combination(request)
        if stage == "candidates":
            return "(a) alpha of the two (b) beta of the two"
        if stage == "summary":
            return "beta is right\n" if place else " alpha is right"
        if stage == "check":
            return {True: "True.", False: "false", None: "perhaps"}[valid[place]]
        if stage == "choice":
            return {0: "1", 1: "Summary 2", None: "neither"}[choices[place]]
        return "nothing"

    return say


def _of_query(request: Request) -> Any:
    return COMBINATIONS[int(request.prompt.query.id[1:])]


def test_every_vote_through_the_whole_method_in_seven_calls(open_world: Copy) -> None:
    workspace = open_world("w")
    backend = Scripted(_says(_of_query))
    table = evaluate(workspace, backend, "sure")
    kept = outcomes(workspace, table.run, "sure")
    for i, combination in enumerate(COMBINATIONS):
        assert kept[f"q{i}"]["answer"] == ("alpha of the two", "beta of the two")[_vote(*combination)], combination
        assert kept[f"q{i}"]["correct"] == bool(_vote(*combination))
    asked = Counter((request.prompt.query.id, _stage(request)) for request in backend.asked)
    for i in range(len(COMBINATIONS)):
        counts = {stage: asked[f"q{i}", stage] for stage in STAGES.values()}
        assert counts == {"candidates": 1, "summary": 2, "check": 2, "choice": 2}
    row = table.methods["sure"]
    assert (row.usage.calls, row.usage.failures, row.shots) == (7 * len(COMBINATIONS), 0, SETTINGS.k)
    for request in backend.asked:
        shown = kept[request.prompt.query.id]["shots"]
        if _stage(request) in ("candidates", "summary"):
            assert [d.id for d in request.prompt.demonstrations] == shown
            places = [request.prompt.text.index(f"Answer: out {name[1:]}\n") for name in shown]
            assert places == sorted(places)


def test_labels_are_told_where_candidates_are_asked_for(tmp_path: Path) -> None:
    pool = [{"id": f"d{i}", "input": t, "output": ("red", "green", "blue")[i % 3]} for i, t in enumerate(texts(40, 3))]
    workspace = make_world(tmp_path / "w", pool, [{"id": "q", "input": texts(1, 4)[0], "output": "red"}])
    backend = Scripted(lambda request: "(a) red (b) blue")
    evaluate(workspace, backend, "sure", settings=replace(SETTINGS, k=0))
    (asked,) = [request.prompt.text for request in backend.asked if _stage(request) == "candidates"]
    assert all(label in asked for label in ("red", "green", "blue"))


@pytest.mark.parametrize("reply", ["(a) beta of the two", "beta of the two", ""])
def test_one_candidate_or_none_is_asked_no_more(open_world: Copy, reply: str) -> None:
    workspace = open_world("w")
    usual = _says(_of_query)
    backend = Scripted(lambda request: reply if _stage(request) == "candidates" else usual(request))
    table = evaluate(workspace, backend, "sure", limit=6)
    row = table.methods["sure"]
    assert (row.usage.calls, row.usage.failures, row.accuracy) == (6, 0, float(bool(reply)))
    assert {_stage(request) for request in backend.asked} == {"candidates", "answer"}


CALLS_MADE = {"candidates": 1, "summary": 3, "check": 5, "choice": 7}


@pytest.mark.parametrize("stage", list(STAGES.values()))
def test_a_failed_call_is_the_querys_result_and_counted_whatever_its_stage(open_world: Copy, stage: str) -> None:
    workspace = open_world("w")
    well = _says(_of_query)

    def ill(request: Request) -> str | Failure:
        fails = (
            _stage(request) == stage and request.prompt.query.id == "q2" and _place(request) == (stage != "candidates")
        )
        return Failure("request", f"no {stage}") if fails else well(request)

    table = evaluate(workspace, Scripted(ill), "sure", limit=8)
    kept = outcomes(workspace, table.run, "sure")
    assert kept["q2"]["failure"] == f"request: no {stage}"
    assert (kept["q2"]["answer"], kept["q2"]["correct"]) == (None, None)
    assert [query for query, found in kept.items() if found["failure"]] == ["q2"]
    row = table.methods["sure"]
    assert (row.usage.failures, row.usage.calls) == (1, 7 * 7 + CALLS_MADE[stage])
    assert row.accuracy == sum(bool(found["correct"]) for found in kept.values()) / 8
    healed = Scripted(well)
    again = evaluate(workspace, healed, "sure", limit=8)
    assert (again.methods["sure"].usage.failures, again.methods["sure"].usage.calls) == (0, 56)
    assert len(healed.asked) == 7 - CALLS_MADE[stage] + 1


def test_stopped_in_the_middle_it_goes_on_and_pays_nothing_twice(open_world: Copy) -> None:
    whole = Scripted(_says(_of_query))
    wanted = evaluate(open_world("whole"), whole, "sure", limit=12)
    workspace = open_world("w")
    asked: list[Request] = []
    for stop_after in (30, 10):  # in the second and in the third stage at the latest, of four with 24 calls each
        token = CancelToken()
        backend = Scripted(_says(_of_query), cancel=token, stop_after=stop_after)
        with pytest.raises(Cancelled):
            evaluate(workspace, backend, "sure", monitor=Monitor(cancel=token), limit=12)
        asked += backend.asked
    last = Scripted(_says(_of_query))
    table = evaluate(workspace, last, "sure", limit=12)
    asked += last.asked
    assert last.asked
    assert Counter(request.prompt.text for request in asked) == Counter(r.prompt.text for r in whole.asked)
    assert table.methods["sure"].accuracy == wanted.methods["sure"].accuracy


def test_passages_that_do_not_fit_are_dropped_for_every_stage(tmp_path: Path) -> None:
    pool = [{"id": f"d{i}", "input": t + " filler" * 60, "output": f"out {i}"} for i, t in enumerate(texts(20, 3))]
    workspace = make_world(tmp_path / "w", pool, [{"id": "q0", "input": texts(1, 4)[0], "output": "beta of the two"}])
    limit, said = 700, _says(_of_query)

    def say(request: Request) -> str | Failure:
        tokens = len(request.prompt.text.split()) + request.sampling.max_tokens
        return Failure("context", "too long") if tokens > limit else said(request)

    backend = Scripted(say, Capabilities(logprobs=False, scoring=False, context_tokens=limit))
    table = evaluate(workspace, backend, "sure", settings=replace(SETTINGS, k=10))
    assert table.methods["sure"].usage.failures == 0
    shots = table.methods["sure"].shots
    assert 0 < shots < 10 and math.isclose(shots, 10 - outcomes(workspace, table.run, "sure")["q0"]["dropped"])
