"""Scores of a local model against direct forward passes, one token at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from factories.calibrate_world import workspace_of
from factories.models import CHAT, save_model
from icl_curate.engine.backends.hf.model import LocalModel
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import LLMSettings
from icl_curate.engine.papers.calibrate import stored as kept
from icl_curate.engine.papers.calibrate.calibration import Calibration
from icl_curate.engine.papers.calibrate.documents import queries_of
from icl_curate.engine.papers.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.papers.calibrate.scores import answer_score, document_scores
from icl_curate.engine.store.settings import Settings

QUERIES = [
    {
        "id": "sky",
        "input": "which colour has the sky?",
        "output": "blue",
        "context": "The sky is blue.\n\nA dog barks.",
    },
    {"id": "ferry", "input": "when does it run?", "output": "morning", "context": "On Sundays.\n\nIn the morning."},
]
TOKENS = 4


def direct(folder: Path, messages: list[dict[str, str]]) -> tuple[float, float, float]:
    """Product, geometric mean and mean entropy of the greedy answer, as uncertainties, by plain forward passes."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    total = entropies = 0.0
    count = 0
    with torch.no_grad():
        while count < TOKENS:
            distribution = model(torch.tensor([ids])).logits[0, -1].double().softmax(-1)
            token = int(distribution.argmax())
            if token == tokenizer.eos_token_id:
                break
            ids.append(token)
            total += float(distribution[token].log())
            entropies += float(-(distribution * distribution.log()).sum())
            count += 1
    mean = torch.tensor([total / count, -entropies / count]).exp()
    return 1 - float(torch.tensor(total).exp()), 1 - float(mean[0]), 1 - float(mean[1])


@pytest.mark.parametrize(("estimator", "which"), [("product", 0), ("geometric", 1), ("entropy", 2)])
def test_every_score_equals_a_direct_forward_pass(tmp_path: Path, estimator: str, which: int) -> None:
    folder = save_model(tmp_path / "model", "llama", CHAT)
    workspace = workspace_of(tmp_path / "w", QUERIES)
    settings = Settings(llm=f"hf:{folder}", device="cpu", dtype="float32", max_tokens=TOKENS)
    backend = LocalModel(str(folder), LLMSettings(device="cpu", dtype="float32"))
    plan = CalibrationPlan(rounds=2, split="validation", estimator=estimator)
    done = Calibration.prepare(LLMClient(workspace, backend, settings), queries_of(workspace, "validation"), plan).ask(
        Budget()
    )
    cases = kept.stored_cases(workspace, done.run, "full")

    def again(messages: Any) -> float:
        return direct(folder, [{"role": role, "content": content} for role, content in messages])[which]

    firsts = [again(case.rounds[0].messages) for case in cases]
    mean = sum(firsts) / len(firsts)
    with workspace.read() as con:
        alone = con.execute("SELECT place, prompt FROM calibration_documents ORDER BY place, document").fetchall()
    for place, case in enumerate(cases):
        for round_ in case.rounds:
            uncertainty = again(round_.messages)
            assert round_.uncertainty == pytest.approx(uncertainty, abs=2e-5)
            assert round_.score == pytest.approx(answer_score(uncertainty, mean), abs=2e-2)
        by_hand = document_scores([again(json.loads(prompt)) for p, prompt in alone if p == place])
        assert [d.score for d in case.documents] == pytest.approx(list(by_hand), abs=2e-2)
