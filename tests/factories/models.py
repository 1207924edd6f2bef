"""Small transformers models made here, and a reference that computes them by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from icl_curate.engine.pool.prompts import Prompt
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PROSE = """The harbour lies at the mouth of the river, where barges bring timber and grain down from the hills.
Question: which colour has the sky? Answer: blue. Question: which animal barks? Answer: the dog.
A ferry crosses to the island four times a day, except on Sundays, when it runs only in the morning.
positive negative possible impossible neutral; Statement: Options: (A) (B) (C) café naïve Übung 日本語"""


def _tokenizer(template: str | None) -> Any:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = ["<|bos|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    core.train_from_iterator(PROSE.splitlines() * 3, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<|bos|>", eos_token="<|end|>")
    if template:
        tokenizer.chat_template = template
    return tokenizer


CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system turn') }}{% endif %}" + CHAT


def save_model(folder: Path, kind: str, template: str | None = None) -> Path:
    torch.manual_seed(7)
    tokenizer = _tokenizer(template)
    size = len(tokenizer)
    small: dict[str, Any] = {
        "vocab_size": size, "hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.15, "eos_token_id": 1,
    }  # fmt: skip
    if kind == "llama":
        config: Any = transformers.LlamaConfig(**small, num_hidden_layers=3)
    elif kind == "gemma":  # every second layer sees all, the others a window of 8
        kinds = ["sliding_attention", "full_attention"] * 2
        config = transformers.Gemma3TextConfig(
            **small, num_hidden_layers=4, head_dim=12, sliding_window=8, layer_types=kinds
        )
    elif kind == "mistral":  # all layers see a window of 8
        config = transformers.MistralConfig(**small, num_hidden_layers=2, sliding_window=8)
    else:
        config = transformers.GPT2Config(
            vocab_size=size, n_embd=48, n_layer=3, n_head=4, n_positions=512, initializer_range=0.15, eos_token_id=1
        )
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class Reference:
    """The same model, straight from transformers: one unpadded sequence at a time, no cache."""

    def __init__(self, folder: Path) -> None:
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def text(self, prompt: Prompt) -> str:
        if not self.tokenizer.chat_template:
            return prompt.text
        messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
        return str(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=not self.tokenizer.chat_template)["input_ids"])

    @torch.inference_mode()
    def logprobs(self, ids: list[int]) -> torch.Tensor:
        return self.model(input_ids=torch.tensor([ids])).logits[0].float().log_softmax(-1)

    def score(self, prompt: Prompt, choice: str) -> list[float]:
        text = self.text(prompt)
        whole = text + (choice if self.tokenizer.chat_template else f" {choice}")
        ids = self.ids(whole)
        # the option's tokens: the shortest tail that still decodes to all of the option
        start = max(k for k in range(1, len(ids)) if self.tokenizer.decode(ids[k:]).endswith(whole[len(text) :]))
        rows = self.logprobs(ids)
        return [float(rows[k - 1, ids[k]]) for k in range(start, len(ids))]

    def greedy(self, prompt: Prompt, count: int) -> tuple[list[int], list[float]]:
        ids, values = self.ids(self.text(prompt)), []
        start = len(ids)
        for _ in range(count):
            row = self.logprobs(ids)[-1]
            token = int(row.argmax())
            if token == 1:
                break
            ids.append(token)
            values.append(float(row[token]))
        return ids[start:], values
