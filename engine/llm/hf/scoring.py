"""Log-probabilities of given options: as trees on a shared prefix, or, the plain way, one row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...pool.prompts import Message, Prompt
from ...pool.records import Query
from .loaded import ROW_TOKENS, Loaded
from .tokens import Scored, common, encode_options

if TYPE_CHECKING:
    import torch

TREE_TOKENS = 1024
"""Tokens of a forward pass over a tree: enough to fill the matrix units, and the mask stays small."""
TREE_TOLERANCE = 0.05
"""Largest difference, in nats, between tree and plain scores of the self-test; wide enough for bfloat16."""


Score = tuple[Scored, tuple[float, ...]]
"""An option and the log-probabilities of its tokens."""


def score_tree(loaded: Loaded, rows: Sequence[Scored]) -> Iterator[list[Score]]:
    """All options of requests that begin alike: the common tokens once, the rest as trees on their cache. What one
    forward pass gave comes together."""
    shared = min(common([row.ids for row in rows]), min(row.split for row in rows) - 1)
    cache = loaded.prefill(rows[0].ids[:shared]) if shared else loaded.empty_cache()
    for pack in _packs(rows, shared):
        yield list(_score_pack(loaded, pack, shared, cache))


def score_rows(loaded: Loaded, rows: Sequence[Scored]) -> Iterator[list[Score]]:
    """The plain way: prompt and option in a row each, padded on the right. Slow, and what the tree must equal."""
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
        found: list[Score] = []
        for r, i in enumerate(batch):
            row = rows[i]
            window = logits[r, row.split - 1 - first : len(row.ids) - 1 - first]
            found.append((row, tuple(_logprobs_of(window, row.ids[row.split :]))))
        yield found


def tree_works(loaded: Loaded) -> bool:
    """Whether the tree gives this model's plain scores: not every architecture takes a mask of one's own.

    Layers that keep only a window or a state cannot be cut back to the prefix and are not even tried.
    """
    from transformers.cache_utils import DynamicLayer

    prompt = Prompt((Message("user", "Is a rose a flower or a stone?"),), Query(""), choices=("a flower", "stone"))
    other = Prompt((Message("user", "Is it a flower?"),), Query(""), choices=("yes it is", "no"))
    rows = encode_options(loaded.tokenizer, 0, prompt)
    rows += encode_options(loaded.tokenizer, 1, other)
    rows = [row for row in rows if 1 <= row.split < len(row.ids)]
    try:
        cache = loaded.prefill(rows[0].ids[:1])
        if not cache.layers or any(type(layer) is not DynamicLayer for layer in cache.layers):
            return False
        tree, plain = (_by_option(way(loaded, rows)) for way in (score_tree, score_rows))
    except (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return False
    pairs = [(a, b) for option in plain for a, b in zip(tree[option], plain[option], strict=True)]
    return all(abs(a - b) <= TREE_TOLERANCE for a, b in pairs)


def _by_option(found: Iterator[list[Score]]) -> dict[tuple[int, int], tuple[float, ...]]:
    return {(row.request, row.option): values for some in found for row, values in some}


def _score_pack(loaded: Loaded, pack: Sequence[Scored], shared: int, cache: Any) -> Iterator[Score]:
    """One forward pass over a forest: for each request a stem (its prompt's rest), for each option a branch."""
    import torch

    forks = {
        request: min(common([row.ids for row in siblings]), min(row.split for row in siblings))
        for request, siblings in _by_request(pack).items()
    }
    tokens: list[int] = []
    depth: list[int] = []
    spans: list[tuple[int, int, int, int]] = []  # for each node run: start, end, its stem's start and end
    stems: dict[int, tuple[int, int]] = {}
    paths: list[tuple[Scored, list[int]]] = []
    for row in pack:
        fork = forks[row.request]
        if row.request not in stems:
            stems[row.request] = (len(tokens), len(tokens) + fork - shared)
            spans.append((*stems[row.request], *stems[row.request]))
            tokens.extend(row.ids[shared:fork])
            depth.extend(range(shared, fork))
        start, stem = len(tokens), stems[row.request]
        tokens.extend(row.ids[fork:-1])
        depth.extend(range(fork, len(row.ids) - 1))
        spans.append((start, len(tokens), *stem))
        # the node whose logits predict the token at position p stands at position p − 1
        nodes = [
            stem[0] + p - 1 - shared if p - 1 < fork else start + p - 1 - fork for p in range(row.split, len(row.ids))
        ]
        paths.append((row, nodes))
    needed = sorted({node for _, nodes in paths for node in nodes})
    logits = loaded.forward(
        torch.tensor([tokens]),
        attention_mask=_tree_mask(loaded, len(tokens), shared, spans),
        position_ids=torch.tensor([depth]),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=torch.tensor(needed, device=loaded.device),
    ).logits[0]
    cache.crop(-len(tokens))
    at = {node: i for i, node in enumerate(needed)}
    lines = [at[node] for _, nodes in paths for node in nodes]
    targets = [token for row, _ in paths for token in row.ids[row.split :]]
    flat = iter(_logprobs_of(logits[torch.tensor(lines, device=logits.device)], targets))
    for row, nodes in paths:
        yield row, tuple(next(flat) for _ in nodes)


def _tree_mask(loaded: Loaded, size: int, shared: int, spans: Sequence[tuple[int, int, int, int]]) -> torch.Tensor:
    """Additive mask of shape (1, 1, size, shared + size): 0 for what a node sees, the dtype's minimum elsewhere."""
    import torch

    allowed = torch.zeros((size, shared + size), dtype=torch.bool)
    allowed[:, :shared] = True
    for start, end, stem_start, stem_end in spans:
        own = torch.ones((end - start, end - start), dtype=torch.bool).tril()
        if start != stem_start:
            allowed[start:end, shared + stem_start : shared + stem_end] = True
        allowed[start:end, shared + start : shared + end] = own
    dtype = loaded.model.dtype
    mask = torch.zeros((size, shared + size), dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min)
    return mask[None, None].to(loaded.device)


def _by_request(rows: Sequence[Scored]) -> dict[int, list[Scored]]:
    found: dict[int, list[Scored]] = {}
    for row in rows:
        found.setdefault(row.request, []).append(row)
    return found


def _packs(rows: Sequence[Scored], shared: int) -> Iterator[list[Scored]]:
    """Whole requests in forests of about `TREE_TOKENS` tokens; a request with very many options spans several."""
    pack: list[Scored] = []
    size = 0
    previous = -1
    for row in rows:
        stem = row.split - shared if row.request != previous or not pack else 0
        cost = stem + len(row.ids) - row.split
        if pack and size + cost > TREE_TOKENS:
            yield pack
            pack, size = [], 0
            cost = len(row.ids) - shared
        pack.append(row)
        size += cost
        previous = row.request
    if pack:
        yield pack


def _logprobs_of(logits: torch.Tensor, targets: Sequence[int]) -> list[float]:
    """Natural log-probability of ``targets[i]`` under row i of ``logits``, shape (n, vocabulary); in float32, since
    a log-softmax in bfloat16 leaves a few distinct values; in blocks, since the vocabulary is wide."""
    import torch

    wanted = torch.tensor(targets, device=logits.device)
    values: list[float] = []
    for start in range(0, len(targets), 256):
        block = logits[start : start + 256].float()
        chosen = block.gather(1, wanted[start : start + 256, None])[:, 0]
        values.extend((chosen - block.logsumexp(1)).tolist())
    return [min(value, 0.0) for value in values]
