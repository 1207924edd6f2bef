"""Where a local model looks: against one plain pass with all attention weights, and as figures of a set."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from factories.calibrate_world import CAPITAL, SCRIPT, SETTINGS, Scripted, workspace_of
from factories.models import CHAT, save_model
from icl_curate.engine.backends.hf.model import LocalModel
from icl_curate.engine.base.errors import LLMError
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import LLMSettings, Looked
from icl_curate.engine.papers.calibrate.calibration import Calibration
from icl_curate.engine.papers.calibrate.documents import queries_of
from icl_curate.engine.papers.calibrate.results import SetCalibration
from icl_curate.engine.papers.calibrate.round_runner import CalibrationPlan
from icl_curate.engine.papers.calibrate.variants import recall_at
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.store.settings import Settings

TEXTS = ("A ferry crosses to the island.", "The harbour lies at the river.")


@pytest.mark.parametrize("template", [CHAT, None])
def test_shares_equal_one_plain_pass_with_all_weights(tmp_path: Path, template: str | None) -> None:
    folder = save_model(tmp_path / "model", "llama", template)
    asked = "\n\n".join([*TEXTS, "Question: which animal barks?\nAnswer:"])
    prompt = Prompt((Message("system", "Answer."), Message("user", asked)), Query("q"))
    backend = LocalModel(str(folder), LLMSettings(device="cpu", dtype="float32"))
    looked = [Looked(prompt, "the dog", TEXTS), Looked(prompt, "the dog", ("not in it",))]
    shares, missing = asyncio.run(backend.attention(looked))
    assert missing is None
    assert shares

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    text = prompt.text
    if template:
        turns = [{"role": m.role, "content": m.content} for m in prompt.messages]
        text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    said = tokenizer("the dog" if template else " the dog", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        layers = model(torch.tensor([ids + said[:-1]]), output_attentions=True).attentions
    rows = torch.stack([layer[0, :, len(ids) - 1 :].mean((0, 1)) for layer in layers]).mean(0)
    for share, found in zip(shares, TEXTS, strict=True):
        start = text.index(found)
        inside = tokenizer(text[:start], add_special_tokens=False)["input_ids"]
        whole = tokenizer(text[: start + len(found)], add_special_tokens=False)["input_ids"]
        assert share == pytest.approx(float(rows[len(inside) : len(whole)].sum()), abs=0.02)
    assert 0.0 < sum(shares) < 1.0


def test_recall_of_what_gets_most_attention() -> None:
    shares, relevant = (0.1, 0.4, 0.2, 0.3), (True, True, False, False)
    assert [recall_at(shares, relevant, k) for k in (1, 2, 3, 4)] == [0.5, 0.5, 0.5, 1.0]


def test_figures_before_and_after_the_first_calibration(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", "llama", CHAT)
    workspace = workspace_of(tmp_path / "w", [CAPITAL])
    settings = Settings(llm=f"hf:{folder}", device="cpu", dtype="float32", max_tokens=4)
    backend = LocalModel(str(folder), LLMSettings(device="cpu", dtype="float32"))
    plan = CalibrationPlan(rounds=1, split="validation", attention=True)
    asked = queries_of(workspace, "validation")
    done = Calibration.prepare(LLMClient(workspace, backend, settings), asked, plan).ask(Budget())
    assert isinstance(done, SetCalibration)
    found = done.figures.attention
    assert found
    assert (found.queries, set(found.before)) == (1, {"2", "5"})
    assert found.before["2"] in (0.0, 1.0)
    assert found.before["5"] == found.after["5"] == 1.0  # of three documents
    assert type(done).from_json(json.loads(json.dumps(done.as_json()))) == done
    with pytest.raises(LLMError, match="does not tell where it looks"):
        Calibration.prepare(LLMClient(workspace, Scripted(SCRIPT), SETTINGS), asked, plan)
