"""What methods that ask while they select cost before they run, and what is refused before the first call."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from factories.asked_world import (
    GENERATES,
    SCORES,
    SETTINGS,
    Copy,
    Scripted,
    copier,
    evaluation,
    make_world,
    texts,
)
from factories.commands import Run
from factories.servers import Server
from icl_curate.engine.backends.offline.reader import OfflineReader
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.base.errors import LLMError, UsageError
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.evaluate.request_stages import LLM_METHODS
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.loop import close
from icl_curate.engine.llm.types import Answer, Capabilities, LLMSettings, Request, Result
from icl_curate.engine.select.methods import METHODS
from icl_curate.engine.store.workspace import Workspace
from numpy.typing import NDArray

LABELS = ("red", "green", "blue")
TEST = 5


def _built(path: Path, outputs: Sequence[str]) -> Workspace:
    pool = [
        {"id": f"d{i}", "input": t, "output": outputs[i % len(outputs)]} for i, t in enumerate(texts(36, 5, words=3))
    ]
    test = [{"id": f"q{i}", "input": t, "output": outputs[0]} for i, t in enumerate(texts(TEST, 6, words=3))]
    return make_world(path, pool, test)


@pytest.fixture(scope="module")
def _worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Workspace]:
    base = tmp_path_factory.mktemp("plans")
    return {"labels": _built(base / "labels", LABELS), "open": _built(base / "open", [f"out {i}" for i in range(36)])}


@pytest.fixture
def labelled(_worlds: dict[str, Workspace], tmp_path: Path) -> Copy:
    return copier(_worlds["labels"], tmp_path)


@pytest.fixture
def open_world(_worlds: dict[str, Workspace], tmp_path: Path) -> Copy:
    return copier(_worlds["open"], tmp_path)


def _typical(request: Request) -> str | Result:
    """Replies of the usual form: no two summaries alike, an order that is not the one given."""
    text = request.prompt.messages[-1].content
    if request.score:
        seen = [zlib.crc32(f"{request.prompt.text} {choice}".encode()) / 2**32 for choice in request.prompt.choices]
        return Answer(request.prompt.choices[0], option_logprobs=tuple((math.log(max(p, 1e-9)),) for p in seen))
    if text.startswith("Put the"):
        count = len(request.prompt.demonstrations)
        return " > ".join(f"[{i}]" for i in range(count, 0, -1))
    if "Name the two" in text:
        return "(a) red (b) green"
    if "Sum up" in text:
        said = re.search("Proposed answer: (.*)", text)
        return f"It speaks for {said[1] if said else ''}."
    return "True" if "Does the summary" in text else "1" if "Which summary" in text else "red"


@pytest.mark.parametrize("method", list(LLM_METHODS))
def test_a_plan_counts_what_the_run_then_asks(labelled: Copy, method: str) -> None:
    workspace, backend = labelled("w"), Scripted(_typical, SCORES)
    for methods in ((method,), ("bm25", "dense", method)):
        work = evaluation(workspace, backend, *methods)
        before = work.cost()
        assert len(backend.asked) == before.cached
        work.ask(Budget())
        assert len(backend.asked) == before.cached + before.to_ask
        after = evaluation(workspace, backend, *methods).cost()
        assert (after.to_ask, after.cached) == (0, len(backend.asked))


@pytest.mark.parametrize(("method", "calls"), [("rerank", 2), ("sure", 7)])
def test_the_calls_of_a_query(open_world: Copy, method: str, calls: int) -> None:
    plan = evaluation(open_world("w"), Scripted(_typical), method, "bm25").cost()
    assert plan.to_ask == TEST * (1 + 1 + calls)  # and one each for zero and bm25


def test_all_methods_in_one_plan(labelled: Copy) -> None:
    workspace, backend = labelled("w"), Scripted(_typical, SCORES)
    work = evaluation(workspace, backend, *LLM_METHODS)
    plan = work.cost()
    table = work.ask(Budget())
    assert plan.to_ask == len(backend.asked)
    assert plan.requests == TEST + sum(row.usage.calls for row in table.methods.values())
    assert evaluation(workspace, backend, *LLM_METHODS).cost().to_ask == 0


class Closed(Scripted):
    """Fails the test when it is asked anything, a probe included."""

    async def probe(self) -> Capabilities:
        raise AssertionError("probed")

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        raise AssertionError("asked")


def test_a_dry_run_with_an_llm_never_probed_refuses_and_asks_nothing(labelled: Copy) -> None:
    plan = evaluation(labelled("w"), Closed(_typical), *LLM_METHODS, dry_run=True).cost()
    assert plan.to_ask > TEST * (1 + 2 + 7 + 10 + 31)


def _calls_kept(workspace: Workspace) -> int:
    with workspace.read() as con:
        ((count,),) = con.execute("SELECT count(*) FROM llm_calls").fetchall()
    return int(count)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("method", ["rerank", "sure", "cone"])
def test_the_offline_reader_cannot_be_instructed(labelled: Copy, method: str, dry_run: bool) -> None:
    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        raise AssertionError("read")

    workspace = labelled("w")
    with pytest.raises(LLMError, match=f"{method} needs .*instructions, which offline does not provide"):
        evaluation(workspace, OfflineReader(encode, "none"), "bm25", method, dry_run=dry_run)
    assert _calls_kept(workspace) == 0


@pytest.mark.parametrize("method", ["mdl", "mdr"])
def test_the_offline_reader_can_be_measured(labelled: Copy, method: str) -> None:
    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.array([np.random.default_rng(sum(map(ord, text))).normal(size=8) for text in texts])
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)

    table = evaluation(labelled("w"), OfflineReader(encode, "words"), method).ask(Budget())
    assert table.methods[method].usage.failures == 0


@pytest.mark.parametrize("method", ["mdl", "mdr", "cone"])
def test_a_server_that_cannot_score_is_refused_before_the_first_call(labelled: Copy, method: str) -> None:
    workspace = labelled("w")
    with Server(echo=False) as server:
        backend = OpenAIServer("stub", LLMSettings(base_url=server.url))
        try:
            with pytest.raises(LLMError, match=f"{method} needs scores of given options") as raised:
                evaluation(workspace, backend, "bm25", method)
        finally:
            close(backend)
        assert "llm check" in raised.value.fix
        assert not any(text in call.text for call in server.calls for text in texts(TEST, 6, words=3))
    assert _calls_kept(workspace) == 0


@pytest.mark.parametrize("method", ["mdl", "mdr", "cone"])
def test_capabilities_that_look_like_none_known_are_still_checked(labelled: Copy, method: str) -> None:
    backend = Scripted(_typical, GENERATES)
    with pytest.raises(LLMError, match="scores of given options"):
        evaluation(labelled("w"), backend, method)
    assert backend.asked == []


@pytest.mark.parametrize("dry_run", [False, True])
def test_mdl_has_nothing_to_compare_on_open_questions(open_world: Copy, dry_run: bool) -> None:
    backend = Scripted(_typical, SCORES)
    with pytest.raises(UsageError, match="mdl needs answer options"):
        evaluation(open_world("w"), backend, "mdl", dry_run=dry_run)
    assert backend.asked == []


def test_without_shots_and_with_more_than_there_are(labelled: Copy) -> None:
    workspace = labelled("w")
    for k in (0, 100):
        table = evaluation(workspace, Scripted(_typical, SCORES), *LLM_METHODS, settings=replace(SETTINGS, k=k)).ask(
            Budget()
        )
        assert {row.shots for row in table.methods.values()} == {min(k, 36)}
        assert {row.usage.failures for row in table.methods.values()} == {0}


def test_help_and_the_refusal_of_a_wrong_name_list_every_method(labelled: Copy, run: Run) -> None:
    told = re.sub(r"-\n\s+", "-", run("evaluate", "--help").out)  # lines break at hyphens, too
    for name in (*METHODS, *LLM_METHODS):
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", told), name
    with pytest.raises(UsageError, match="did you mean 'rerank'") as raised:
        evaluation(labelled("w"), Scripted(_typical), "rerenk")
    assert all(name in raised.value.fix for name in (*METHODS, *LLM_METHODS))


def test_an_error_about_an_option_is_told_alone(tmp_path: Path, run: Run) -> None:
    rows = [json.dumps({"input": f"text {i}", "output": "abcd"[i // 20]}) + "\n" for i in range(80)]
    for name in ("pool", "test"):
        (tmp_path / f"{name}.jsonl").write_text("".join(rows).replace("text", name))
    files = (tmp_path / "pool.jsonl", "--test", tmp_path / "test.jsonl")
    run("index", *files, "-w", tmp_path / "w", "--no-encode")
    asked = ("evaluate", "--limit", 10, "--dry-run", "-w", tmp_path / "w")
    assert "warning: test queries: the first 10 have 1 of 4 labels" in run(*asked, "-m", "bm25").err
    for wrong in (("-m", "nonesuch"), ("-m", "bm25", "--by", "nofield")):
        assert run(*asked, *wrong).err.startswith("error: ")


def test_a_field_that_no_query_has_is_refused_before_the_llm_is_probed(labelled: Copy) -> None:
    class Unasked(Scripted):
        async def probe(self) -> Capabilities:
            raise AssertionError("probed")

    plan = EvaluationPlan(methods=("bm25",), by="nofield")
    with pytest.raises(UsageError, match="no query has a field 'nofield'"):
        Evaluation.prepare(LLMClient(labelled("w"), Unasked(_typical), SETTINGS), plan)


def test_a_price_of_nothing_says_that_it_is_a_stand_in_that_asks_nothing(support: Path, run: Run) -> None:
    told = run("evaluate", "-m", "dense", "--limit", 2, "--dry-run", "-w", support).out
    assert "nothing: the offline reader is not an LLM" in told
