"""A model in memory and its forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

ROW_TOKENS = 8192
"""Tokens (rows × length) of a padded batch."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What answering needs: the transformers model, its configuration and its tokenizer.

    ``check`` is called before every forward pass, and by `watched` between its layers: it raises to end the work.
    """

    name: str
    model: Any
    config: Any
    tokenizer: Any
    check: Callable[[], None] = lambda: None

    @property
    def device(self) -> Any:
        return self.model.device

    def forward(self, ids: torch.Tensor, **arguments: Any) -> Any:
        """The model's output for token ids (n, length), moved to its device with all tensors beside them."""
        self.check()
        device = self.device
        moved = {k: v.to(device) if hasattr(v, "to") and hasattr(v, "shape") else v for k, v in arguments.items()}
        moved.setdefault("use_cache", False)
        return self.model(input_ids=ids.to(device), **moved)

    def watched(self) -> Loaded:
        """Itself, with every layer of the model calling ``check`` first: a pass over a long prompt takes seconds."""
        import torch

        for module in self.model.modules():
            if isinstance(module, torch.nn.ModuleList):
                for layer in module:
                    layer.register_forward_pre_hook(lambda *_: self.check())
        return self

    def empty_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self.config)

    def prefill(self, ids: Sequence[int]) -> Any:
        """The cache of a prefix, computed once for all that begin with it."""
        import torch

        cache = self.empty_cache()
        positions = torch.arange(len(ids))[None]
        self.forward(
            torch.tensor([list(ids)]), position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        return cache
