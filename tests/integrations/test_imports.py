"""Imported prompts against the real libraries, each where it is installed: the same bytes for the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from icl_curate.engine.pool.records import Demonstration, Query
from icl_curate.engine.prompting.expect import differs
from icl_curate.engine.prompting.imports import import_template
from icl_curate.engine.prompting.template import OPEN, FileTemplate

EXAMPLES = [
    {"ticket": "charged twice\n", "tier": "gold", "team": "billing"},
    {"ticket": "where is <it>?", "tier": "new", "team": "order"},
]
ASKED = {"ticket": "the app\n is broken ", "tier": "gold"}


def _messages(saved: Path, **options: Any) -> Any:
    shots = [Demonstration(i, str(i), row["ticket"], row["team"], "s", metadata=row) for i, row in enumerate(EXAMPLES)]
    source = import_template(saved, input="ticket", **options).source
    return FileTemplate(source).render(Query(ASKED["ticket"], fields=ASKED), shots, OPEN)


def test_a_few_shot_prompt_of_langchain(tmp_path: Path) -> None:
    prompts = pytest.importorskip("langchain_core.prompts")
    shot = prompts.PromptTemplate.from_template("Ticket ({tier}): {ticket}\nTeam: {team}")
    prompt = prompts.FewShotPromptTemplate(
        examples=EXAMPLES, example_prompt=shot, prefix="Route {{it}}, a {tier} one.", suffix="Ticket: {ticket}\nTeam:",
        input_variables=["ticket", "tier"],
    )  # fmt: skip
    prompt.save(tmp_path / "few.json")
    assert differs({"prompt": prompt.format(**ASKED)}, _messages(tmp_path / "few.json")) is None


@pytest.mark.parametrize("form", ["f-string", "mustache"])
def test_a_chat_of_langchain_with_few_shot_messages(tmp_path: Path, form: str) -> None:
    prompts = pytest.importorskip("langchain_core.prompts")
    from langchain_core.load import dumps

    question = "Ticket: {ticket}"
    few = prompts.FewShotChatMessagePromptTemplate(
        examples=EXAMPLES,
        example_prompt=prompts.ChatPromptTemplate.from_messages([("human", question), ("ai", "{team}")]),
    )
    asked = question if form == "f-string" else "{{#tier}}\n{{tier}}: {{ticket}} {{{ticket}}}\n{{/tier}}"
    last = prompts.HumanMessagePromptTemplate.from_template(asked, template_format=form)
    chat = prompts.ChatPromptTemplate.from_messages([("system", "Route {{it}} for {tier}."), few, last])
    (tmp_path / "chat.json").write_text(dumps(chat))
    roles = {"system": "system", "human": "user", "ai": "assistant"}
    said = [{"role": roles[turn.type], "content": turn.content} for turn in chat.format_messages(**ASKED)]
    assert differs({"messages": said}, _messages(tmp_path / "chat.json")) is None


@pytest.mark.parametrize("reasons", [False, True])
def test_a_signature_of_dspy(tmp_path: Path, reasons: bool) -> None:
    dspy = pytest.importorskip("dspy")
    signature = dspy.Signature("tier, ticket -> team").with_updated_fields("ticket", desc="what {they} wrote")
    program = dspy.ChainOfThought(signature) if reasons else dspy.Predict(signature)
    program.save(str(tmp_path / "program.json"))
    (predictor,) = program.predictors()
    said = dspy.ChatAdapter().format(predictor.signature, [dict(row) for row in EXAMPLES], dict(ASKED))
    assert differs({"messages": said}, _messages(tmp_path / "program.json")) is None
