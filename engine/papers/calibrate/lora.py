"""Supervised fine-tuning of a local model with LoRA, on conversations whose last turn is the wanted answer.

The tokens of a conversation are exactly those that `hf.model.generate` sees and produces: the chat template up to the
assistant's turn, the answer, the end of the turn. Only the answer and its end are trained on. A batch is summed over
conversations one at a time, so that memory holds one, and divided by its trained tokens. The rate falls from its
initial value along a cosine; gradients are clipped to norm 1; weights do not decay (the defaults of LLaMA-Factory,
which paper 001 uses).

After a step of the optimiser its state can be written whole, and a training with the same key goes on from there.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...backends.hf.adapters import base_of, is_adapter, peft_package, without_future_warnings
from ...backends.hf.loading import device_named, load_weights
from ...backends.hf.tokens import encode, render
from ...base.errors import UsageError, WorkspaceError
from ...base.files import replace_file
from ...pool.prompts import Prompt
from ...pool.records import Message, Query

if TYPE_CHECKING:
    import torch

CLIP = 1.0
"""Largest norm of a step's gradient."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to fine-tune: the initial ``rate``, passes over the set, conversations per step, and the rank of the LoRA
    matrices, which are scaled by 2 (alpha = 2 · rank)."""

    rate: float = 5e-5
    epochs: int = 3
    batch: int = 16
    rank: int = 8
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Lesson:
    """A conversation as tokens; those from ``split`` on are trained on."""

    ids: list[int]
    split: int


def lesson_of(tokenizer: Any, conversation: Sequence[Message]) -> Lesson:
    """The conversation as tokens. Raises `UsageError` if the tokenizer has no token that ends an answer, `Unrendered`
    if the chat template refuses the conversation."""
    end = tokenizer.eos_token_id
    if end is None:
        raise UsageError("the model's tokenizer has no end token, so no answer would end", "choose another model")
    *asked, answer = conversation
    text, chat = render(tokenizer, Prompt(tuple(asked), Query("")))
    ids = encode(tokenizer, text, chat)
    said = tokenizer(answer.content if chat else f" {answer.content}", add_special_tokens=False, verbose=False)
    return Lesson([*ids, *said["input_ids"], end], len(ids))


class Trainer:
    """LoRA weights in training: a new adapter on a model, or, for an adapter, its own weights.

    ``name`` is what `load_weights` takes. Raises `LLMError` if the model cannot be loaded, `UsageError` without peft.
    """

    def __init__(self, name: str, dtype: str, device: str, recipe: Recipe, lessons: Sequence[Lesson]) -> None:
        import torch

        peft = peft_package()
        self.recipe, self.lessons = recipe, lessons
        base = load_weights(base_of(name), dtype, device_named(device))
        with torch.random.fork_rng(devices=[]), without_future_warnings():
            torch.manual_seed(recipe.seed)
            if is_adapter(name):
                self.model = peft.PeftModel.from_pretrained(base, name, is_trainable=True)
            else:
                config = peft.LoraConfig(
                    r=recipe.rank, lora_alpha=2 * recipe.rank, target_modules="all-linear", task_type="CAUSAL_LM"
                )
                self.model = peft.get_peft_model(base, config)
        self.model.train()
        self.weights = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self.optimiser = torch.optim.AdamW(self.weights.values(), lr=recipe.rate, weight_decay=0.0)
        self.losses: list[float] = []
        """Of each finished step, the mean negative log-likelihood of its trained tokens, in nats."""

    @property
    def steps(self) -> int:
        """Optimiser steps in all."""
        return self.recipe.epochs * math.ceil(len(self.lessons) / self.recipe.batch)

    def run(self, check: Callable[[], None]) -> Iterator[float]:
        """The losses of the remaining steps. ``check`` is called before every conversation; it raises to end the
        training."""
        import torch

        for batch in self._batches()[len(self.losses) :]:
            trained = sum(len(self.lessons[i].ids) - self.lessons[i].split for i in batch)
            total = 0.0
            self.optimiser.zero_grad()
            for i in batch:
                check()
                loss = self._loss(self.lessons[i]) / trained
                loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
            torch.nn.utils.clip_grad_norm_(self.weights.values(), CLIP)
            for group in self.optimiser.param_groups:
                group["lr"] = self.recipe.rate * 0.5 * (1.0 + math.cos(math.pi * len(self.losses) / self.steps))
            self.optimiser.step()
            self.losses.append(total)
            yield total

    def keep(self, file: Path, key: str) -> None:
        """Write weights and optimiser state to ``file``, under ``key``."""
        from safetensors.torch import save

        tensors = {f"weights/{name}": value.detach() for name, value in self.weights.items()}
        for name, value in self.weights.items():
            for part, state in self.optimiser.state[value].items():
                tensors[f"{part}/{name}"] = state
        about = {"key": key, "losses": json.dumps(self.losses)}
        content = save({n: t.contiguous().cpu() for n, t in tensors.items()}, about)
        replace_file(file, lambda opened: opened.write(content))

    def resume(self, file: Path, key: str) -> bool:
        """Go on from what `keep` wrote under the same key; False if there is no such file. Raises `WorkspaceError` if
        it is damaged."""
        import torch
        from safetensors import SafetensorError, safe_open

        if not file.is_file():
            return False
        try:
            with safe_open(file, framework="pt") as stored:
                about = stored.metadata() or {}
                if about.get("key") != key:
                    return False
                with torch.no_grad():
                    for name, value in self.weights.items():
                        value.copy_(stored.get_tensor(f"weights/{name}"))
                for name, value in self.weights.items():
                    self.optimiser.state[value] = {
                        part: stored.get_tensor(f"{part}/{name}").to("cpu" if part == "step" else value.device)
                        for part in ("step", "exp_avg", "exp_avg_sq")
                    }
                self.losses = [float(loss) for loss in json.loads(about["losses"])]
        except torch.cuda.OutOfMemoryError:  # the state is whole
            raise
        except (SafetensorError, RuntimeError, LookupError, TypeError, ValueError) as error:
            fix = f"rm {shlex.quote(str(file))}; the same command again starts anew"
            raise WorkspaceError("the state of the unfinished training is damaged", fix) from error
        return True

    def save(self, folder: Path) -> None:
        """Write the adapter as peft does."""
        self.model.save_pretrained(str(folder))

    def _batches(self) -> list[list[int]]:
        """The conversations of each step: every epoch all of them, in an order drawn from the seed."""
        import torch

        batches = []
        for epoch in range(self.recipe.epochs):
            draw = torch.Generator().manual_seed(self.recipe.seed * 1_000_003 + epoch)
            order = torch.randperm(len(self.lessons), generator=draw).tolist()
            batches += [order[i : i + self.recipe.batch] for i in range(0, len(order), self.recipe.batch)]
        return batches

    def _loss(self, lesson: Lesson) -> torch.Tensor:
        """The summed negative log-likelihood of the trained tokens, in nats."""
        import torch

        trained = lesson.ids[lesson.split :]
        ids = torch.tensor([lesson.ids[:-1]], device=self.model.device)
        logits = self.model(input_ids=ids, logits_to_keep=len(trained), use_cache=False).logits[0]
        return torch.nn.functional.cross_entropy(
            logits.float(), torch.tensor(trained, device=logits.device), reduction="sum"
        )
