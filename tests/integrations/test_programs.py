"""A prompt and a program of the real libraries, named on the command line: each where the library is installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from factories.commands import Run
from factories.own_code import Make, modules
from icl_curate.engine.pool.records import Demonstration, Message, Query, Task
from icl_curate.engine.prompting.function import FunctionTemplate, own
from icl_curate.engine.prompting.template import build_prompt

TASK = Task("labels", ("delivery", "billing"))
SHOTS = [
    Demonstration(0, "d0", "where did the parcel go", "delivery", "s", metadata={"tier": "gold"}),
    Demonstration(1, "d1", "I was billed twice", "billing", "s", metadata={"tier": "silver"}),
]
QUERY = Query("the parcel never came", fields={"tier": "gold", "label": "delivery"})


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a module of a text and gives its name."""
    yield from modules(tmp_path / "own", monkeypatch)


def test_the_prompt_of_a_dspy_predictor_is_the_one_that_dspy_sends(named: Make) -> None:
    dspy = pytest.importorskip("dspy")
    from dspy.utils import DummyLM

    module = named("import dspy\nroute = dspy.Predict('ticket, tier -> team')\n")
    template = FunctionTemplate(f"{module}:route")
    prompt = build_prompt(QUERY, SHOTS, TASK, template, "best-first")
    predict = dspy.Predict("ticket, tier -> team")
    predict.demos = [
        dspy.Example(ticket=shot.input, tier=shot.metadata["tier"], team=shot.output).with_inputs("ticket", "tier")
        for shot in SHOTS
    ]
    lm = DummyLM([{"team": "billing"}])
    with dspy.context(lm=lm):
        predict(ticket=QUERY.input, tier="gold")
    sent = lm.history[-1]["messages"]
    assert [{"role": turn.role, "content": turn.content} for turn in prompt.messages] == sent
    assert template.reads == {"tier"} and not template.reasons

    # an answer is written and read as by its adapter
    demonstration = next(turn["content"] for turn in sent if turn["role"] == "assistant")
    assert template.form.write("delivery") == demonstration
    assert template.form.read(demonstration) == "delivery"
    assert template.form.read("delivery") == ""  # DSPy asks again, with JSON
    assert template.form.read("[[ ## team ## ]]\nbilling") == "billing"


def test_outputs_before_the_answer_of_a_dspy_predictor(named: Make) -> None:
    pytest.importorskip("dspy")
    module = named("import dspy\nroute = dspy.ChainOfThought('ticket -> team')\n")
    template = FunctionTemplate(f"{module}:route")
    shots = [Demonstration(0, "d", "lost", "delivery", "s", metadata={"reasoning": "It is about a parcel."})]
    prompt = build_prompt(Query("where?"), shots, TASK, template)
    assert template.reasons and "It is about a parcel." in prompt.messages[2].content
    assert template.form.read("[[ ## reasoning ## ]]\nHm.\n\n[[ ## team ## ]]\nbilling\n") == "billing"


STEPS = """
import dspy
from dspy.utils import DummyLM

class Route(dspy.Module):
    def __init__(self):
        self.topic = dspy.Predict("ticket -> topic")
        self.team = dspy.Predict("ticket, topic -> team")
    def forward(self, ticket):
        topic = self.topic(ticket=ticket).topic
        return self.team(ticket=ticket, topic=topic)

lm = DummyLM([{"topic": "a parcel"}, {"team": "delivery"}] * 50)
program = Route()
program.set_lm(lm)
"""


def test_a_dspy_program_runs_with_the_shots_and_says_what_it_called(named: Make) -> None:
    pytest.importorskip("dspy")
    from dspy.clients.base_lm import GLOBAL_HISTORY

    module = named(STEPS)
    program = own(f"{module}:program", "program")
    reply = program.call(*program.given(QUERY, SHOTS))
    assert (reply.text, reply.calls) == ("delivery", 2)
    loaded = sys.modules[module]
    asked = [[turn["content"] for turn in call["messages"]] for call in GLOBAL_HISTORY[-2:]]
    assert not any("billed twice" in text for text in asked[0])  # it has no field of the answer
    assert any("billed twice" in text for text in asked[1])
    assert loaded.program.team.demos == []  # a copy was run
    assert "dspy" in program.identity and "sources" in program.identity


def test_the_state_of_a_dspy_program_is_part_of_its_identity(named: Make) -> None:
    pytest.importorskip("dspy")
    module = named(
        STEPS + "other = Route()\nother.topic.signature = other.topic.signature.with_instructions('Short!')\n"
    )
    plain, other = (own(f"{module}:{name}", "program").identity for name in ("program", "other"))
    assert plain["state"] != other["state"] and plain["sources"] == other["sources"]


CHAIN = """
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import (
    ChatPromptTemplate, FewShotChatMessagePromptTemplate, FewShotPromptTemplate, MessagesPlaceholder, PromptTemplate,
)

line = PromptTemplate.from_template("Ticket: {input}\\nTeam: {output}")
text = FewShotPromptTemplate(
    examples=[{"input": "fixed", "output": "fixed"}], example_prompt=line, input_variables=["input", "tier"],
    suffix="Tier {tier}. Ticket: {input}\\nTeam:",
)
chat = ChatPromptTemplate.from_messages([("system", "Route."), MessagesPlaceholder("examples"), ("human", "{input}")])
turns = ChatPromptTemplate.from_messages([("human", "{input}"), ("ai", "{output}")])
few = FewShotChatMessagePromptTemplate(example_prompt=turns, examples=[{"input": "fixed", "output": "fixed"}])
mixed = ChatPromptTemplate.from_messages([("system", "Route."), few, ("human", "{input}")])
without = ChatPromptTemplate.from_messages([("human", "{input}")])
usage = {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15}
model = GenericFakeChatModel(messages=iter([AIMessage("billing", usage_metadata=usage)] * 50))
chain = mixed | model | StrOutputParser()
"""


def test_a_langchain_prompt_shows_the_shots_as_its_examples(named: Make) -> None:
    prompts = pytest.importorskip("langchain_core.prompts")
    module = named(CHAIN)
    template = FunctionTemplate(f"{module}:text")
    prompt = build_prompt(QUERY, SHOTS, TASK, template, "best-first")
    by_library = prompts.FewShotPromptTemplate(
        examples=[{"input": shot.input, "output": shot.output} for shot in SHOTS],
        example_prompt=prompts.PromptTemplate.from_template("Ticket: {input}\nTeam: {output}"),
        suffix="Tier {tier}. Ticket: {input}\nTeam:",
        input_variables=["input", "tier"],
    ).format(input=QUERY.input, tier="gold")
    assert prompt.messages == (Message("user", by_library),) and template.reads == {"tier"}
    for name in ("chat", "mixed"):
        prompt = build_prompt(QUERY, SHOTS, TASK, FunctionTemplate(f"{module}:{name}"), "best-first")
        assert [(turn.role, turn.content) for turn in prompt.messages] == [
            ("system", "Route."),
            *((role, text) for s in SHOTS for role, text in (("user", s.input), ("assistant", s.output))),
            ("user", QUERY.input),
        ]


def test_a_langchain_prompt_that_shows_no_examples_is_refused(named: Make) -> None:
    pytest.importorskip("langchain_core")
    from icl_curate import CurateError

    module = named(CHAIN)
    with pytest.raises(CurateError, match="shows no demonstrations"):
        FunctionTemplate(f"{module}:without")
    with pytest.raises(CurateError, match="is no prompt of LangChain"):
        FunctionTemplate(f"{module}:chain")


def test_a_chain_is_judged_by_the_command_line(named: Make, run: Run, tmp_path: Path) -> None:
    pytest.importorskip("langchain_core")
    module = named(CHAIN)
    rows = [{"input": f"ticket {i} of {'a bill' if i % 2 else 'a parcel'}", "output": ("delivery", "billing")[i % 2]}
            for i in range(12)]  # fmt: skip
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:8]))
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[8:]))
    done = run("index", tmp_path / "pool.jsonl", "--test", tmp_path / "test.jsonl", "-w", tmp_path / "w", "--no-encode")
    assert done.code == 0, done.err
    done = run("evaluate", "--methods", "bm25", "--llm", f"program:{module}:chain", "-w", tmp_path / "w", "--json")
    assert done.code == 0, done.err
    assert done.json["methods"]["bm25"]["accuracy"] == 0.5  # it always says billing
    used = done.json["methods"]["bm25"]
    assert (used["calls"], used["tokens_in"], used["tokens_out"]) == (4, 4 * 12, 4 * 3)
