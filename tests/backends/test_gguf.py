"""A model in one GGUF file, against the weights it was written from."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from factories.calibrate_world import CAPITAL, workspace_of
from factories.models import CHAT, Reference, save_model
from icl_curate.engine.backends.hf.gguf import folder_of
from icl_curate.engine.backends.hf.model import LocalModel
from icl_curate.engine.base.errors import LLMError
from icl_curate.engine.llm.types import Answer, LLMSettings, Request, Sampling
from icl_curate.engine.papers.calibrate.lora import Recipe
from icl_curate.engine.papers.calibrate.tuning import FineTuning, FineTuningPlan
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.store.settings import Settings
from safetensors import safe_open

gguf = pytest.importorskip("gguf")

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def _name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    _, _, layer, part = name.split(".", 3)
    return f"blk.{layer}.{LAYER[part.removesuffix('.weight')]}.weight"


def _interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of q and k in the order in which llama.cpp rotates them: pairs side by side."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


def write_gguf(folder: Path, file: Path, tied: bool = False) -> Path:
    """A saved Llama and its tokenizer as llama.cpp has them, in float32; ``tied``: without an output layer."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    config = model.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    special = set(tokenizer.all_special_tokens) | {"<|user|>", "<|assistant|>", "<|system|>"}
    kinds = [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token, _ in vocabulary]
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template(tokenizer.chat_template)
    for name, weight in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        for part, count in heads.items():
            if part in name:
                weight = _interleaved(weight, count)
        writer.add_tensor(_name(name), weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "chat", "llama", CHAT)


@pytest.fixture
def file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_gguf(folder, tmp_path / "Tiny-F32.gguf")


def _model(name: Path | str) -> LocalModel:
    return LocalModel(str(name), LLMSettings(dtype="float32"))


def _prompt(choices: tuple[str, ...] = ()) -> Prompt:
    return Prompt((Message("user", "Question: which animal barks?"),), Query("?"), (), choices)


def test_its_answers_are_those_of_the_weights_it_was_written_from(folder: Path, file: Path) -> None:
    model, reference = _model(file), Reference(folder)
    scored, generations = asyncio.run(
        model.ask(
            [
                Request(_prompt(("the dog", "blue")), score=True),
                Request(_prompt(), sampling=Sampling(max_tokens=6)),
            ]
        )
    )
    assert isinstance(scored, Answer) and isinstance(generations, Answer)
    for got, choice in zip(scored.option_logprobs, ("the dog", "blue"), strict=True):
        assert got == pytest.approx(reference.score(_prompt(), choice), abs=1e-4)
    tokens, values = reference.greedy(_prompt(), 6)
    assert list(generations.tokens) == [reference.tokenizer.decode([token]) for token in tokens]
    assert generations.logprobs == pytest.approx(values, abs=1e-4)


def test_it_is_turned_into_a_folder_once_and_known_by_its_content(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_model(file).probe())
    assert capfd.readouterr().err == ""  # no bars of transformers' on a terminal that is not its own
    (folder,) = (tmp_path / "cache" / "icl-curate" / "models").iterdir()
    made = (folder / "config.json").stat().st_mtime_ns
    moved = file.rename(tmp_path / "moved.gguf")
    again = _model(moved)
    asyncio.run(again.probe())
    assert (folder / "config.json").stat().st_mtime_ns == made
    before = dict(again.identity())
    content = bytearray(moved.read_bytes())
    content[-1] ^= 0x40
    moved.write_bytes(content)
    assert _model(moved).identity()["weights"] != before["weights"]


@pytest.mark.parametrize("tied", [True, False])
def test_it_is_parsed_once_and_tied_weights_are_stored_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tied: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = write_gguf(folder, tmp_path / "tiny.gguf", tied)
    parsed, parse = [], gguf.GGUFReader.__init__

    def counted(self: Any, path: Any, *more: Any) -> None:
        parsed.append(path)
        parse(self, path, *more)

    reader = gguf.GGUFReader
    monkeypatch.setattr(reader, "__init__", counted)
    made = folder_of(str(file), "digest")
    assert len(parsed) == 1 and gguf.GGUFReader is reader
    with safe_open(made / "model.safetensors", "pt") as weights:
        assert ("lm_head.weight" in weights.keys()) != tied  # noqa: SIM118
    loaded = transformers.AutoModelForCausalLM.from_pretrained(made)
    original = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    for name, weight in loaded.state_dict().items():
        wanted = "model.embed_tokens.weight" if tied and name == "lm_head.weight" else name
        assert torch.equal(weight, original[wanted])
    assert json.loads((made / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]


def test_a_file_that_is_none_and_a_cache_that_cannot_be_written_say_what_to_do(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(LLMError) as caught:
        asyncio.run(_model(broken).probe())
    assert "broken.gguf" in caught.value.what and caught.value.fix
    assert not list((tmp_path / "cache" / "icl-curate" / "models").iterdir())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(LLMError) as caught:
        asyncio.run(_model(file).probe())
    assert "XDG_CACHE_HOME" in caught.value.fix


def test_a_folder_that_cannot_be_put_in_its_place_says_why(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (models := tmp_path / "cache" / "icl-curate" / "models").mkdir(parents=True)
    (models / "taken").write_text("")
    with pytest.raises(LLMError, match="Not a directory"):
        folder_of(str(file), "taken")
    assert [made.name for made in models.iterdir()] == ["taken"]


def test_an_adapter_is_trained_on_a_file_and_loads_on_it(file: Path, tmp_path: Path) -> None:
    settings = Settings(llm=f"hf:{file}", device="cpu", dtype="float32")
    plan = FineTuningPlan(recipe=Recipe(1e-2, 1, 1), on="answers")
    done = FineTuning.prepare(workspace_of(tmp_path / "w", [CAPITAL]), settings, plan).run()
    adapted = LocalModel(done.adapter, LLMSettings(device="cpu", dtype="float32"))
    assert asyncio.run(adapted.probe()).logprobs
    assert adapted.identity()["weights"] != LocalModel(str(file)).identity()["weights"]
