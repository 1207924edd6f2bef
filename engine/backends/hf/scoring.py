"""Log-probabilities of given options: as forests on a shared prefix, or, the plain way, one row each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.arrays import Bools
from ...pool.prompts import Prompt
from ...pool.records import Message, Query
from .loaded import PASS_TOKENS_CPU, ROW_TOKENS, Loaded, cut_back
from .tokens import WORTH_SHARING, Scored, common, encode, encode_options, render

if TYPE_CHECKING:
    import torch

TREE_TOKENS = 2048
"""Tokens of a forward pass over a forest: on an H100 1.5 times as fast as 1,024, and as fast as 4,096, whose mask is
four times as large. On a CPU `PASS_TOKENS_CPU`."""
TREE_TOLERANCE = {"float32": 0.01}
"""Largest difference, in nats, between tree and plain scores of the self-test, by dtype."""
TREE_TOLERANCE_HALF = 0.5
"""The same for two-byte types: SmolLM2's scores in bfloat16 differ by .2 between two equivalent computations, and an
ignored mask changes them by several nats."""


Score = tuple[Scored, tuple[float, ...]]
"""An option and the log-probabilities of its tokens."""


@dataclass(slots=True)
class OptionForest:
    """Options with the ends of their prompts as trees: common prefixes are stored once.

    For each node its ``tokens``, its ``depths`` (position in its prompt) and its ``parents`` (−1 at the end of the
    shared prefix); ``paths`` lists for each option the nodes whose logits predict its tokens.
    """

    shared: int
    tokens: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    paths: list[tuple[Scored, list[int]]] = field(default_factory=list)
    _children: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, row: Scored) -> None:
        node, nodes = -1, []
        for depth in range(self.shared, len(row.ids) - 1):  # the last token is only ever a target
            key = (node, row.ids[depth])
            if key not in self._children:
                self._children[key] = len(self.tokens)
                self.tokens.append(row.ids[depth])
                self.depths.append(depth)
                self.parents.append(node)
            node = self._children[key]
            if depth >= row.split - 1:
                nodes.append(node)
        self.paths.append((row, nodes))


def score_tree(loaded: Loaded, rows: Sequence[Scored]) -> Iterator[list[Score]]:
    """All options of many requests: the common prefix once, the rest as forests on its cache. Parts that begin alike
    and do not fit into one forest get their own prefix, recursively, as does a prompt that fills a forest by itself: a
    pass without a mask computes half of the attention. Results of one forward pass are yielded together."""
    limit = PASS_TOKENS_CPU if loaded.device.type == "cpu" else TREE_TOKENS
    rows = sorted(rows, key=lambda row: row.ids)
    shared = _shared(rows)
    apart, together = [], []
    for _, alike in itertools.groupby(rows, key=lambda row: row.ids[shared]):
        part = list(alike)
        if _shared(part) - shared >= WORTH_SHARING and _distinct_tokens(part, shared) > limit:
            apart.append(part)
            continue
        for _, of_request in itertools.groupby(part, key=lambda row: row.request):
            options = list(of_request)
            if options[0].split - shared > limit:
                apart.append(options)
            else:
                together.extend(options)
    if together:
        cache = loaded.prefix(rows[0].ids[:shared])
        for forest in _forests(together, shared, limit):
            yield list(_score_forest(loaded, forest, cache))
    for part in apart:
        yield from score_tree(loaded, part)


def _shared(rows: Sequence[Scored]) -> int:
    """Number of leading tokens that all share, excluding the last one before an option: its logits are needed."""
    return min(common([row.ids for row in rows]), min(row.split for row in rows) - 1)


def _distinct_tokens(rows: Sequence[Scored], shared: int) -> int:
    """Number of nodes in the forest of sorted rows."""
    first = len(rows[0].ids) - 1 - shared
    return first + sum(len(b.ids) - 1 - common([a.ids, b.ids]) for a, b in itertools.pairwise(rows))


def _forests(rows: Sequence[Scored], shared: int, limit: int) -> Iterator[OptionForest]:
    """Sorted rows in forests of about ``limit`` tokens: whole requests, because another forest would compute the prompt
    again; only a request that fills a forest by itself is divided."""
    forest, last = OptionForest(shared), list[int]()
    for _, of_request in itertools.groupby(rows, key=lambda row: row.request):
        options = list(of_request)
        there = max(common([last, options[0].ids]) - shared, 0) if last else 0
        if forest.tokens and len(forest.tokens) + _distinct_tokens(options, shared) - there > limit:
            yield forest
            forest = OptionForest(shared)
        for i, row in enumerate(options):
            if i and len(forest.tokens) + len(row.ids) - row.split > max(limit, 2 * (row.split - shared)):
                yield forest
                forest = OptionForest(shared)
            forest.add(row)
        last = options[-1].ids
    yield forest


def _score_forest(loaded: Loaded, forest: OptionForest, cache: Any) -> Iterator[Score]:
    """One forward pass."""
    import torch

    needed = sorted({node for _, nodes in forest.paths for node in nodes})
    try:
        logits = loaded.forward(
            torch.tensor([forest.tokens]),
            attention_mask=_forest_mask(loaded, forest),
            position_ids=torch.tensor([forest.depths]),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=torch.tensor(needed, device=loaded.device),
        ).logits[0]
    finally:
        cut_back(cache, forest.shared)
    at = {node: i for i, node in enumerate(needed)}
    lines = [at[node] for _, nodes in forest.paths for node in nodes]
    targets = [token for row, _ in forest.paths for token in row.ids[row.split :]]
    flat = iter(_logprobs_of(logits[torch.tensor(lines, device=logits.device)], targets))
    for row, nodes in forest.paths:
        yield row, tuple(next(flat) for _ in nodes)


def _forest_mask(loaded: Loaded, forest: OptionForest) -> torch.Tensor | dict[str, torch.Tensor]:
    """Additive mask of shape (1, 1, size, shared + size): 0 for the prefix, a node's ancestors and itself, the
    dtype's minimum elsewhere. Layers that see a window get their own, without what is further away."""
    import torch

    size, shared = len(forest.tokens), forest.shared
    seen = np.zeros((size, shared + size), dtype=np.bool_)
    seen[:, :shared] = True
    for node, parent in enumerate(forest.parents):
        if parent >= 0:
            seen[node] = seen[parent]  # its ancestors, those of its parent and the parent
        seen[node, shared + node] = True

    def additive(seen: Bools) -> torch.Tensor:
        dtype = loaded.model.dtype
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill(~torch.from_numpy(seen), torch.finfo(dtype).min)
        return mask[None, None].to(loaded.device)

    if (window := loaded.window) is None:
        return additive(seen)
    depths = np.array(forest.depths)
    near = additive(seen & (depths[:, None] - np.concatenate([np.arange(shared), depths]) < window))
    return {"full_attention": additive(seen), "sliding_attention": near} if loaded.sees_all else near


def score_rows(loaded: Loaded, rows: Sequence[Scored]) -> Iterator[list[Score]]:
    """The plain way: prompt and option in a row each, padded on the right. Slow; the reference for the tree."""
    import torch

    order = sorted(range(len(rows)), key=lambda i: -len(rows[i].ids))
    while order:
        longest = len(rows[order[0]].ids)
        count = max(1, ROW_TOKENS // longest)
        batch, order = order[:count], order[count:]
        keep = longest - min(rows[i].split for i in batch)
        ids = torch.zeros((len(batch), longest - 1), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for r, i in enumerate(batch):
            inputs = rows[i].ids[:-1]  # the last token is only ever a target
            ids[r, : len(inputs)] = torch.tensor(inputs)
            mask[r, : len(inputs)] = 1
        positions = torch.arange(longest - 1).expand(len(batch), -1)
        logits = loaded.forward(ids, attention_mask=mask, position_ids=positions, logits_to_keep=keep).logits
        first = longest - 1 - logits.shape[1]
        scores: list[Score] = []
        for r, i in enumerate(batch):
            row = rows[i]
            window = logits[r, row.split - 1 - first : len(row.ids) - 1 - first]  # logits at j predict token j + 1
            scores.append((row, tuple(_logprobs_of(window, row.ids[row.split :]))))
        yield scores


def tree_works(loaded: Loaded) -> bool:
    """Whether the tree reproduces this model's plain scores: not every architecture accepts a custom mask.

    Models with layers that keep a state, or see other parts than a window, cannot be cut back to the prefix and are not
    tried. The prompts here are shorter than any window: of masks beyond one this sees that the model takes them.
    """
    from transformers.cache_utils import DynamicLayer

    prompt = Prompt((Message("user", "Is a rose a flower or a stone?"),), Query(""), choices=("a flower", "stone"))
    other = Prompt((Message("user", "Is it a flower?"),), Query(""), choices=("yes it is", "no"))
    rows = encode_options(loaded.tokenizer, 0, prompt)
    rows += encode_options(loaded.tokenizer, 1, other)
    rows = [row for row in rows if 1 <= row.split < len(row.ids)]
    try:
        cache = loaded.prefix(rows[0].ids[:1])
        if not cache.layers or any(type(layer) is not DynamicLayer for layer in cache.layers):
            return False
        tree, plain = (
            {(row.request, row.option): values for scores in way(loaded, rows) for row, values in scores}
            for way in (score_tree, score_rows)
        )
    except (AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return False
    pairs = [(a, b) for option in plain for a, b in zip(tree[option], plain[option], strict=True)]
    dtype = str(loaded.model.dtype).removeprefix("torch.")
    return all(abs(a - b) <= TREE_TOLERANCE.get(dtype, TREE_TOLERANCE_HALF) for a, b in pairs)


def _logprobs_of(logits: torch.Tensor, targets: Sequence[int]) -> list[float]:
    """Natural log-probability of ``targets[i]`` under row i of ``logits``, shape (n, vocabulary); in float32, because a
    log-softmax in bfloat16 has few distinct values; in blocks, because the vocabulary is large."""
    import torch

    wanted = torch.tensor(targets, device=logits.device)
    values: list[float] = []
    for start in range(0, len(targets), 256):
        block = logits[start : start + 256].float()
        chosen = block.gather(1, wanted[start : start + 256, None])[:, 0]
        values.extend((chosen - block.logsumexp(1)).tolist())  # log softmax: x[target] − log Σ exp x
    return [min(value, 0.0) for value in values]


def attention_to(loaded: Loaded, prompt: Prompt, answer: str, texts: Sequence[str]) -> tuple[float, ...] | None:
    """For each of ``texts``, which the prompt contains in this order, the share of attention it gets from the positions
    that predict the answer's tokens: the mean over these, all layers and all heads. None if a text is not found.

    The prompt is run without attention weights, which would be quadratic in its length, and the answer on its cache.
    """
    import torch

    text, chat = render(loaded.tokenizer, prompt)
    spans = _spans(text, texts)
    if spans is None:
        return None
    encoded = loaded.tokenizer(text, add_special_tokens=not chat, return_offsets_mapping=True, verbose=False)
    ids, offsets = list(encoded["input_ids"]), encoded["offset_mapping"]
    said = encode(loaded.tokenizer, answer if chat else f" {answer}", True)[:-1]
    cache, before = loaded.empty_cache(), len(ids) - 1
    shown: dict[str, Any] = {"past_key_values": cache, "use_cache": True, "logits_to_keep": 1}
    loaded.forward(torch.tensor([ids[:before]]), **shown)
    after = torch.tensor([[ids[before], *said]])
    positions = torch.arange(before, before + after.shape[1])[None]
    usual = loaded.model.config._attn_implementation
    loaded.model.set_attn_implementation("eager")  # the only one that returns its weights
    try:
        layers = loaded.forward(after, position_ids=positions, output_attentions=True, **shown).attentions
    finally:
        loaded.model.set_attn_implementation(usual)
    # of each layer (heads, positions, tokens): the mean over heads and positions, then over layers
    weights = torch.stack([layer[0].float().mean((0, 1)) for layer in layers]).mean(0).tolist()
    return tuple(
        sum(weight for weight, (a, b) in zip(weights, offsets, strict=False) if a < end and b > start)
        for start, end in spans
    )


def _spans(text: str, texts: Sequence[str]) -> list[tuple[int, int]] | None:
    """Start and end of each text in the whole, one after the other."""
    spans, at = [], 0
    for part in texts:
        start = text.find(part, at)
        if start < 0:
            return None
        at = start + len(part)
        spans.append((start, at))
    return spans
