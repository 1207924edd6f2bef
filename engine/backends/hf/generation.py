"""Generation of many answers at once, token by token, each with the log-probabilities of the unchanged model."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...llm.types import Answer, Sampling
from ...pool.open_answers import after_thinking
from .loaded import ROW_TOKENS, Loaded

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class Generation:
    """One answer being generated."""

    request: int
    ids: list[int]
    sampling: Sampling
    stops: tuple[str, ...]
    generator: Any
    out: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finish: str = ""


def generate(loaded: Loaded, generations: Sequence[Generation], shared: int) -> Iterator[dict[int, Answer]]:
    """Answers by the positions of their requests, each as soon as it has ended; generated in padded batches, longest
    first, on the cache of the ``shared`` leading tokens."""
    order = sorted(generations, key=lambda d: -len(d.ids))
    prefix = loaded.prefix(order[0].ids[:shared]) if shared else None
    while order:
        count = max(1, ROW_TOKENS // (len(order[0].ids) + order[0].sampling.max_tokens))
        batch, order = order[:count], order[count:]
        start = time.monotonic()
        for ended in _generate_batch(loaded, batch, shared, prefix):
            share = (time.monotonic() - start) / len(batch)
            yield {d.request: _finished(loaded, d, share) for d in ended}


def _generate_batch(
    loaded: Loaded, batch: Sequence[Generation], shared: int, prefix: Any
) -> Iterator[list[Generation]]:
    """The finished answers, after each token at which some end."""
    import torch

    device = loaded.device
    rests = [d.ids[shared:] for d in batch]
    width = max(len(rest) for rest in rests)
    ids = torch.zeros((len(batch), width), dtype=torch.long)
    mask = torch.ones((len(batch), shared + width), dtype=torch.long)
    for r, rest in enumerate(rests):
        ids[r, width - len(rest) :] = torch.tensor(rest)
        mask[r, shared : shared + width - len(rest)] = 0
    # computed here: the model's forward pass would count padding as positions
    positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, shared:]
    if prefix is None:
        cache = loaded.empty_cache()
    else:
        cache = copy.deepcopy(prefix)
        cache.batch_repeat_interleave(len(batch))
    mask = mask.to(device)
    alive, ends = list(batch), _end_tokens(loaded)
    lengths = [len(d.ids) for d in batch]
    while True:
        logits = loaded.forward(
            ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        _step(loaded.tokenizer, alive, logits, ends)
        kept = [r for r, d in enumerate(alive) if not d.finish]
        if len(kept) < len(alive):
            yield [d for d in alive if d.finish]
        if not kept:
            return
        if len(kept) < len(alive):
            rows = torch.tensor(kept, device=device)
            cache.batch_select_indices(rows)
            mask = mask[rows]
            lengths = [lengths[r] for r in kept]
            alive = [alive[r] for r in kept]
        ids = torch.tensor([[d.out[-1]] for d in alive])
        positions = torch.tensor([[length] for length in lengths])
        lengths = [length + 1 for length in lengths]
        mask = torch.cat([mask, torch.ones((len(alive), 1), dtype=mask.dtype, device=device)], dim=1)


def _step(tokenizer: Any, alive: Sequence[Generation], logits: torch.Tensor, ends: set[int]) -> None:
    """Choose the next token of each row, with its log-probability under the unchanged model."""
    import torch

    logprobs = logits.float().log_softmax(-1)
    greedy = logprobs.argmax(-1).tolist()
    entropies = torch.special.entr(logprobs.exp()).sum(-1).tolist()
    for r, d in enumerate(alive):
        row = logprobs[r]
        token = greedy[r] if d.sampling.temperature <= 0 else sample(row, d.sampling, d.generator)
        if token in ends:
            d.finish = "stop"
            continue
        d.out.append(token)
        d.logprobs.append(float(row[token]))
        d.entropies.append(entropies[r])
        if d.stops and stop_place(tokenizer.decode(d.out), d.stops) is not None:
            d.finish = "stop"
        elif len(d.out) >= d.sampling.max_tokens:
            d.finish = "length"


def _end_tokens(loaded: Loaded) -> set[int]:
    ends: set[int] = set()
    for holder in (getattr(loaded.model, "generation_config", None), loaded.config, loaded.tokenizer):
        found = getattr(holder, "eos_token_id", None)
        ends.update(found if isinstance(found, (list, tuple)) else [] if found is None else [found])
    return ends


def _finished(loaded: Loaded, d: Generation, latency: float) -> Answer:
    """The answer, cut before its stop text; tokens entirely after the cut are dropped."""
    tokenizer = loaded.tokenizer
    text = tokenizer.decode(d.out, skip_special_tokens=True)
    cut = stop_place(text, d.stops)
    kept = len(d.out)
    if cut is not None:
        text = text[:cut]
        while kept and len(tokenizer.decode(d.out[: kept - 1], skip_special_tokens=True)) >= cut:
            kept -= 1
    return Answer(
        text=text.strip(),
        tokens=tuple(tokenizer.decode([token]) for token in d.out[:kept]),
        logprobs=tuple(d.logprobs[:kept]),
        entropies=tuple(d.entropies[:kept]),
        finish=d.finish,
        tokens_in=len(d.ids),
        tokens_out=len(d.out),
        latency=latency,
        model=loaded.name,
    )


def generator_of(sampling: Sampling, text: str) -> Any:
    """A random generator for one request, so that neither its batch nor its position in it changes the sample."""
    if sampling.temperature <= 0:
        return None
    import torch

    content = json.dumps([sampling.seed, sampling.repeat, text]).encode()
    seed = int.from_bytes(hashlib.blake2b(content, digest_size=7).digest(), "big")
    return torch.Generator().manual_seed(seed)


def sample(logprobs: torch.Tensor, sampling: Sampling, generator: Any) -> int:
    """Draw from the fewest tokens that hold ``top_p`` of the mass at the temperature (Holtzman et al. 2020)."""
    import torch

    scaled = (logprobs.cpu() / sampling.temperature).double().softmax(-1)
    ordered, index = scaled.sort(descending=True)
    before = ordered.cumsum(0) - ordered
    ordered = torch.where(before < max(sampling.top_p, 1e-12), ordered, 0.0)
    mass = ordered.cumsum(0)
    point = torch.rand((), generator=generator, dtype=torch.float64) * mass[-1]
    place = int(torch.searchsorted(mass, point, right=True))
    return int(index[min(place, int((ordered > 0).sum()) - 1)])


def stop_place(text: str, stops: Iterable[str]) -> int | None:
    """The start of the first stop text, ignoring what is thought before the answer and its leading white space."""
    said = after_thinking(text)
    if said is None:
        return None
    lead = len(text) - len(said.lstrip())
    places = [place for stop in stops if stop and (place := text.find(stop, lead)) >= 0]
    return min(places) if places else None
