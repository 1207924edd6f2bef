"""The selection of a workspace inside the real libraries, each where it is installed: a job of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from icl_curate import Selector
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store.workspace import Workspace
from icl_curate.integrations import asked

QUESTION = "no sign of my parcel since Monday"
TEXTS = {
    "delivery": ["where did the parcel go", "the parcel never came to my door", "parcel lost by the carrier, it seems"],
    "billing": ["I was billed twice in May", "the invoice names another firm", "please refund the second charge"],
    "login": ["the password is refused again", "how do I reset a login", "two codes came and neither works"],
}
ROWS = [{"input": text, "output": label, "source": "s"} for label, texts in TEXTS.items() for text in texts]


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=(str(tmp_path / "pool.jsonl"),)))
    return workspace.path


def selected(pool: Path) -> list[str]:
    return [each.demonstration.input for each in Selector(pool, method="bm25", k=3).select(QUESTION)]


TURNS = [{"role": "user", "content": "may I feed the zebra?"}, {"role": "assistant", "content": "b"}]
RICH = {"input": "and the giraffe?", "output": "a", "options": ["a", "b"], "context": "Zoo rules.", "history": TURNS}
RICH |= {"id": "rich", "source": "s"}


@pytest.fixture
def rich(tmp_path: Path) -> Path:
    """A pool with a row that has options, a passage and earlier turns."""
    (tmp_path / "rich.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (RICH, *ROWS)))
    workspace = Workspace.create(tmp_path / "rich")
    index_pool(workspace, IndexPlan(paths=(str(tmp_path / "rich.jsonl"),)))
    return workspace.path


def test_variables_of_a_prompt_are_fields_of_its_query() -> None:
    given = {"question": "q", "tier": "gold", "n": 1, "answers": ["x"], "tool": object(), "context": "c"}
    query = asked("q", given, "question")
    assert (query.context, query.fields) == ("c", {"tier": "gold", "n": 1})


def test_all_that_a_demonstration_has_reaches_langchain(rich: Path) -> None:
    pytest.importorskip("langchain_core")
    from icl_curate.integrations.langchain import CurateExampleSelector

    selector = CurateExampleSelector(rich, method="bm25", k=2)
    selector.select_examples({"input": "parcel"})[-1]["history"].append("of the one who asked")
    found = selector.select_examples({"input": "giraffe parcel"})
    assert [{name: each[name] for name in ("options", "context", "history")} for each in reversed(found)] == [
        {name: RICH[name] for name in ("options", "context", "history")},
        {"options": [], "context": "", "history": []},
    ]


def test_all_that_a_demonstration_has_reaches_dspy(rich: Path) -> None:
    dspy = pytest.importorskip("dspy")
    from icl_curate import Selector
    from icl_curate.integrations.dspy import example

    [shot] = Selector(rich, method="bm25", k=1).select("giraffe")
    made = example(shot.demonstration, "question", "answer", {"context", "options", "history"})
    assert (made.question, made.answer, made.context, made.options) == (
        "and the giraffe?",
        "a",
        "Zoo rules.",
        ["a", "b"],
    )
    assert isinstance(made.history, dspy.History)
    assert made.history.messages == [{"question": "may I feed the zebra?", "answer": "b"}]
    assert "context" not in example(shot.demonstration, "question", "answer")


def test_all_that_a_demonstration_has_reaches_llamaindex(rich: Path) -> None:
    pytest.importorskip("llama_index.core")
    from icl_curate.integrations.llamaindex import CurateRetriever

    retriever: Any = CurateRetriever(rich, method="bm25", k=1)
    [node] = retriever.retrieve("giraffe")
    assert node.metadata == {name: RICH[name] for name in ("output", "source", "options", "context", "history")}


def test_langchain(pool: Path) -> None:
    pytest.importorskip("langchain_core")
    from icl_curate.integrations.langchain import CurateExampleSelector
    from langchain_core.prompts import FewShotPromptTemplate, PromptTemplate

    examples = CurateExampleSelector(pool, method="bm25", k=3)
    prompt = FewShotPromptTemplate(
        example_selector=examples,
        example_prompt=PromptTemplate.from_template("Question: {input}\nAnswer: {output}"),
        suffix="Question: {input}\nAnswer:",
        input_variables=["input"],
    )
    written = prompt.format(input=QUESTION)
    shown = [f"Question: {text}\nAnswer: delivery" for text in reversed(selected(pool))]
    assert written == "\n\n".join([*shown, f"Question: {QUESTION}\nAnswer:"])
    assert asyncio.run(prompt.aformat(input=QUESTION)) == written
    renamed = CurateExampleSelector(pool, input_key="q", output_key="a", method="bm25", k=1, order="best-first")
    for wrong in ({"input": "x", "a": "y"}, {"q": "x"}, {"q": "x", "a": None}):
        with pytest.raises(UsageError, match=r"the example has no '[qa]'"):
            renamed.add_example(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the prompt has no 'q'"):
        renamed.select_examples({"input": "what of the zebra?"})
    renamed.add_example({"q": "a zebra stands in the hall", "a": "animals"}, new_label=True)
    assert renamed.select_examples({"q": "what of the zebra?"})[0]["a"] == "animals"


def test_dspy(pool: Path) -> None:
    dspy = pytest.importorskip("dspy")
    from dspy.utils import DummyLM
    from icl_curate.integrations.dspy import CurateFewShot, CurateRetriever

    found = CurateRetriever(pool, method="bm25", k=3)(query=QUESTION)
    assert [each.input for each in found.demonstrations] == selected(pool)
    program = CurateFewShot(pool, method="bm25", k=3).compile(dspy.Predict("question -> answer"))
    lm = DummyLM([{"answer": "delivery"}] * 2)
    with dspy.context(lm=lm):
        assert program(question=QUESTION).answer == "delivery"
        asked = [message["content"] for message in lm.history[-1]["messages"]]
        for text in selected(pool):
            assert any(text in content for content in asked)
        assert not any("billed" in content for content in asked)
        other = program(question="billed for what?")
    assert other.answer == "delivery"
    assert any("billed twice in May" in message["content"] for message in lm.history[-1]["messages"])


def test_llamaindex(pool: Path) -> None:
    pytest.importorskip("llama_index.core")
    from icl_curate.integrations.llamaindex import CurateRetriever

    retriever: Any = CurateRetriever(pool, method="bm25", k=3)
    nodes = retriever.retrieve(QUESTION)
    assert [node.get_content() for node in nodes] == selected(pool)
    assert {node.metadata["output"] for node in nodes} == {"delivery"}
    assert [node.score for node in nodes] == sorted((node.score for node in nodes), reverse=True)
    again = asyncio.run(retriever.aretrieve(QUESTION))
    assert [node.node_id for node in again] == [node.node_id for node in nodes]
