"""The backend behind ``hf:``: the model's identity, its loading, and the distribution of requests to scoring and
generation."""

from __future__ import annotations

import copy
import hashlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.errors import LLMError
from ...base.files import read_regular
from ...llm.types import (
    BLOCK_END,
    DEFAULTS,
    Answer,
    Capabilities,
    Failure,
    Keep,
    LLMSettings,
    Looked,
    Request,
    Result,
    Sampling,
)
from ...pool.open_answers import after_thinking, opened_thought
from ...pool.prompts import Prompt
from ...pool.records import Message, Query
from ..worker import Computing
from .adapters import base_of
from .loaded import LONG, PASS_TOKENS_CPU, ROW_TOKENS, ROW_TOKENS_CUDA, Loaded
from .loading import description_of, device_named, digest_of, dtype_named, fingerprint, weights_of
from .scoring import Score, attention_to, score_rows, score_tree, tree_works
from .tokens import (
    WORTH_SHARING,
    Scored,
    Unrendered,
    common,
    context_of,
    encode,
    encode_options,
    grouped,
    render,
    texts_of,
    tokens_in,
)

if TYPE_CHECKING:
    import torch


CUDA_BATCHES = 4
"""Batches of another device in one of CUDA, where too large a one is divided (`LocalModel.compute`)."""


@dataclass(slots=True)
class Generation:
    """One answer being generated."""

    request: int
    ids: list[int]
    sampling: Sampling
    stops: tuple[str, ...]
    generator: Any
    opened: str = ""  # the tag in the prompt with which its thoughts begin
    out: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finish: str = ""
    shared: int = 0  # leading tokens that are read once for all that begin alike


@dataclass(slots=True)
class Beginning:
    """What a forward pass over the prompts of some rows leaves: the logits of their last tokens, the cache, and which
    of its tokens are no padding."""

    logits: torch.Tensor
    cache: Any
    mask: torch.Tensor


def generate(loaded: Loaded, generations: Sequence[Generation], shares: bool) -> Iterator[dict[int, Answer]]:
    """Answers by the positions of their requests, each as soon as it has ended; generated in batches, longest first.

    If it ``shares``, prompts are read in passes of a few and continued in batches of many, whatever they begin with: a
    step of one token takes about as long for one row as for many. What prompts begin with in common is read once.
    """
    alike = [[*generations]]
    if shares:
        alike = [[generations[i] for i in part] for part in grouped([d.ids for d in generations])]
    for part in alike:
        part.sort(key=lambda d: -len(d.ids))
        shared = _shared(loaded, part) if shares else 0
        for d in part:
            d.shared = shared
    alike.sort(key=lambda part: -len(part[0].ids))
    order = list(chain.from_iterable(alike))
    tokens = ROW_TOKENS_CUDA if loaded.device.type == "cuda" else ROW_TOKENS
    while order:
        count = max(1, tokens // (max(len(d.ids) for d in order) + max(d.sampling.max_tokens for d in order)))
        batch, order = order[:count], order[count:]
        start = time.monotonic()
        for ended in _generate_batch(loaded, _passes(loaded, batch) if shares else [batch]):
            share = (time.monotonic() - start) / len(batch)
            yield {d.request: _finished(loaded, d, share) for d in ended}


def _shared(loaded: Loaded, alike: Sequence[Generation]) -> int:
    """Number of leading tokens that are read once for all of them, longest first; 0 if that saves nothing."""
    longest = len(alike[0].ids) + max(d.sampling.max_tokens for d in alike)
    if len(alike) == 1 or longest > (loaded.window or longest):  # a window would count padding behind them as tokens
        return 0
    shared = min(common([d.ids for d in alike]), len(alike[-1].ids) - 1)
    return 0 if shared < WORTH_SHARING or LONG < len(alike[0].ids) > 4 * shared else shared


def _passes(loaded: Loaded, batch: Sequence[Generation]) -> list[list[Generation]]:
    """Rows that are read in one forward pass each: some that share the same tokens, or none."""
    tokens = ROW_TOKENS_CUDA if loaded.device.type == "cuda" else PASS_TOKENS_CPU
    passes: list[list[Generation]] = []
    for d in batch:
        first = passes[-1][0] if passes else d
        alike = first.ids[: first.shared] == d.ids[: d.shared]
        if passes and alike and (len(passes[-1]) + 1) * (len(first.ids) - first.shared) <= tokens:
            passes[-1].append(d)
        else:
            passes.append([d])
    return passes


def _read(loaded: Loaded, rows: Sequence[Generation]) -> Beginning:
    """Read prompts that share the same tokens, or none; what is their own is padded on the left."""
    import torch

    shared = rows[0].shared
    rests = [d.ids[shared:] for d in rows]
    width = max(len(rest) for rest in rests)
    ids = torch.zeros((len(rows), width), dtype=torch.long)
    mask = torch.ones((len(rows), shared + width), dtype=torch.long)
    for r, rest in enumerate(rests):
        ids[r, width - len(rest) :] = torch.tensor(rest)
        mask[r, shared : shared + width - len(rest)] = 0
    # computed here: the model's forward pass would count padding as positions
    positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, shared:]
    cache = loaded.empty_cache()
    if shared:
        cache = copy.deepcopy(loaded.prefix(rows[0].ids[:shared]))
        cache.batch_repeat_interleave(len(rows))
    shown: dict[str, Any] = {} if mask.all() else {"attention_mask": mask}  # without, it computes half the attention
    shown |= {"position_ids": positions, "past_key_values": cache, "use_cache": True, "logits_to_keep": 1}
    return Beginning(loaded.forward(ids, **shown).logits[:, -1], cache, mask.to(loaded.device))


def _joined(loaded: Loaded, beginnings: Sequence[Beginning]) -> Beginning:
    """All rows in one cache, padded on the left."""
    from torch import cat
    from torch.nn.functional import pad

    if len(beginnings) == 1:
        return beginnings[0]
    lengths = [begun.mask.shape[1] for begun in beginnings]
    gaps = [max(lengths) - length for length in lengths]
    cache = loaded.empty_cache()
    for i, layer in enumerate(cache.layers):
        read = [(begun.cache.layers[i], gap) for begun, gap in zip(beginnings, gaps, strict=True)]
        if read[0][0].get_seq_length():  # else it reads what another layer keeps
            layer.update(*(cat([pad(getattr(one, kept), (0, 0, gap, 0)) for one, gap in read]) for kept in KEPT))
            for one, _ in read:
                one.reset()  # or all is in memory twice
    mask = cat([pad(begun.mask, (gap, 0)) for begun, gap in zip(beginnings, gaps, strict=True)])
    return Beginning(cat([begun.logits for begun in beginnings]), cache, mask)


KEPT = ("keys", "values")
"""What a layer of a cache keeps, each of shape (rows, heads, tokens, size of a head)."""


def _generate_batch(loaded: Loaded, passes: Sequence[Sequence[Generation]]) -> Iterator[list[Generation]]:
    """The finished answers, after each token at which some end."""
    import torch

    alive, ends = list(chain.from_iterable(passes)), _end_tokens(loaded)
    begun = _joined(loaded, [_read(loaded, rows) for rows in passes])
    logits, cache, mask = begun.logits, begun.cache, begun.mask
    lengths = [len(d.ids) for d in alive]
    while True:
        _step(loaded.tokenizer, alive, logits, ends)
        left = [r for r, d in enumerate(alive) if not d.finish]
        if len(left) < len(alive):
            yield [d for d in alive if d.finish]
            if not left:
                return
            rows = torch.tensor(left, device=loaded.device)
            cache.batch_select_indices(rows)
            mask = mask[rows]
            lengths = [lengths[r] for r in left]
            alive = [alive[r] for r in left]
        ids = torch.tensor([[d.out[-1]] for d in alive])
        positions = torch.tensor([[length] for length in lengths])
        lengths = [length + 1 for length in lengths]
        mask = torch.cat([mask, mask.new_ones((len(alive), 1))], dim=1)
        shown: Any = {"attention_mask": mask, "position_ids": positions, "past_key_values": cache}
        logits = loaded.forward(ids, **shown, use_cache=True, logits_to_keep=1).logits[:, -1]


def _step(tokenizer: Any, alive: Sequence[Generation], logits: torch.Tensor, ends: set[int]) -> None:
    """Choose the next token of each row, with its log-probability under the unchanged model."""
    import torch

    logprobs = logits.float().log_softmax(-1)
    greedy = logprobs.argmax(-1).tolist()
    entropies = torch.special.entr(logprobs.exp()).sum(-1).tolist()  # −Σ p log p
    for r, d in enumerate(alive):
        row = logprobs[r]
        token = greedy[r] if d.sampling.temperature <= 0 else sample(row, d.sampling, d.generator)
        if token in ends:
            d.finish = "stop"
            continue
        d.out.append(token)
        d.logprobs.append(float(row[token]))
        d.entropies.append(entropies[r])
        if d.stops and stop_place(d.opened + tokenizer.decode(d.out), d.stops) is not None:
            d.finish = "stop"
        elif len(d.out) >= d.sampling.max_tokens:
            d.finish = "length"


def _end_tokens(loaded: Loaded) -> set[int]:
    ends: set[int] = set()
    for holder in (getattr(loaded.model, "generation_config", None), loaded.config, loaded.tokenizer):
        named = getattr(holder, "eos_token_id", None)
        ends.update(named if isinstance(named, (list, tuple)) else [] if named is None else [named])
    return ends


def _finished(loaded: Loaded, d: Generation, latency: float) -> Answer:
    """The answer, cut before its stop text; tokens entirely after the cut are dropped."""
    text = d.opened + loaded.tokenizer.decode(d.out, skip_special_tokens=True)
    cut = stop_place(text, d.stops)
    given = [d.opened] if d.opened else []
    certain = [0.0] * len(given)
    tokens = given + texts_of(loaded.tokenizer, d.out)
    starts = accumulate(map(len, tokens), initial=0)
    count = len(tokens) if cut is None else sum(start < cut for _, start in zip(tokens, starts, strict=False))
    return Answer(
        text=text[:cut].strip(),
        tokens=tuple(tokens[:count]),
        logprobs=tuple([*certain, *d.logprobs][:count]),
        entropies=tuple([*certain, *d.entropies][:count]),
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
    ordered = torch.where(before < max(sampling.top_p, 1e-12), ordered, 0.0)  # those before which less than top_p lies
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


class LocalModel(Computing):
    """The backend behind ``hf:``. The tokenizer is loaded on first use, the weights with the first request. Raises
    `LLMError`, with a fix, if the model cannot be loaded."""

    def __init__(self, name: str, settings: LLMSettings = DEFAULTS, known_as: str = "") -> None:
        """``known_as``: a fixed name for a model whose path differs between machines."""
        super().__init__("icl-curate-hf")
        self.spec = known_as or f"hf:{name}"
        self.name = name
        self._known_as = known_as or name
        self._settings = settings
        self._lock = threading.Lock()
        self._description: tuple[Any, Any] | None = None
        self._identity: Mapping[str, Any] | None = None
        self._loaded: Loaded | None = None
        self._tree = False

    # description

    @property
    def batch_size(self) -> int:
        """Requests computed at once, more with CUDA than elsewhere."""
        return self._settings.batch_size * (CUDA_BATCHES if device_named(self._settings.device) == "cuda" else 1)

    def identity(self) -> Mapping[str, Any]:
        """Path, weights fingerprint (or the hub's commit), dtype, a hash of the chat template, whether that has the
        model think, and the tokens that end an answer where a folder's generation_config.json names others than its
        config.json."""
        if self._identity is None:
            tokenizer, config = self._described()
            template = tokenizer.chat_template
            identity: dict[str, Any] = {
                "backend": "hf",
                "model": self._known_as,
                "weights": fingerprint(self.name, config),
                "dtype": dtype_named(self._settings.dtype, device_named(self._settings.device)),
                "template": digest_of([json.dumps(template, sort_keys=True).encode()]) if template else "text",
            }
            with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
                file = Path(base_of(self.name)).expanduser() / "generation_config.json"
                ends = json.loads(read_regular(file, 1 << 20))["eos_token_id"]
                if ends != getattr(config, "eos_token_id", None):
                    identity["ends"] = ends
            with suppress(LLMError):  # before an answer are its thoughts, which earlier releases took for it
                if opened_thought(self.rendered(Prompt((Message("user", "?"),), Query("?")))):
                    identity["thinks"] = True
            self._identity = identity
        return self._identity

    def count_tokens(self, prompt: Prompt) -> int:
        return tokens_in(self._described()[0], prompt)

    def rendered(self, prompt: Prompt) -> str:
        """See `Renders`."""
        return render(self._described()[0], prompt)[0]

    @property
    def context_tokens(self) -> int | None:
        """Longest sequence the model was made for; None if its configuration does not say."""
        return context_of(*self._described())

    async def probe(self) -> Capabilities:
        """Load it and score two options of a tiny prompt both ways. Raises `LLMError` if it cannot be loaded."""
        start = time.monotonic()
        loaded = await self._worker.run(self._ready)
        notes = []
        if not self._tree:
            notes.append("its attention takes no tree mask: options are scored one row each")
        if not loaded.tokenizer.chat_template:
            notes.append("has no chat template: prompts are sent as one text")
        thinks = "thinks" in self.identity()
        if thinks:
            notes.append("thinks before it answers: allow more tokens per answer; options are not scored")
        return Capabilities(
            logprobs=True,
            scoring=not thinks,
            entropies=True,
            context_tokens=self.context_tokens,
            notes=tuple(notes),
            details={"latency": time.monotonic() - start, "device": str(loaded.device)},
        )

    async def close(self) -> None:
        """Drop the weights; they load again when needed."""
        await super().close()
        self._loaded = None

    # requests

    async def attention(self, looked: Sequence[Looked]) -> list[tuple[float, ...] | None]:
        """See `Attends`."""
        return await self._worker.run(lambda: self._attention(looked))

    def _attention(self, looked: Sequence[Looked]) -> list[tuple[float, ...] | None]:
        import torch

        with torch.inference_mode():
            return [attention_to(self._ready(), look.prompt, look.answer, look.texts) for look in looked]

    def compute(self, requests: Sequence[Request], keep: Keep) -> None:
        """Results arrive by group of prompts with a common prefix, by forward pass over options, and by finished
        answer."""
        import torch

        waiting = dict(enumerate(requests))
        try:
            loaded = self._ready()
        except LLMError as error:
            keep(dict.fromkeys(waiting, Failure("not_found", error.what)))
            return
        at_once = len(waiting)
        while waiting:
            part = dict(list(waiting.items())[:at_once])
            try:
                with torch.inference_mode():
                    scored = self._score_all(loaded, {i: request for i, request in part.items() if request.score})
                    rest = {i: request for i, request in part.items() if not request.score}
                    for results in chain(scored, self._generate_all(loaded, rest)):
                        for place in results:
                            del waiting[place]
                        keep(results)
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
                if at_once > 1:
                    at_once //= 2
                    continue
                (place,) = part
                del waiting[place]
                keep({place: Failure("context", "the prompt does not fit into the accelerator's memory")})

    # loading

    def _described(self) -> tuple[Any, Any]:
        """Tokenizer and configuration, loaded once."""
        with self._lock:
            if self._description is None:
                self._description = description_of(self.name)
        return self._description

    def _ready(self) -> Loaded:
        """Load the weights and test the tree mask on them, once."""
        if self._loaded is None:
            import torch

            tokenizer, config = self._described()
            device = device_named(self._settings.device)
            model = weights_of(self.name, self._settings.dtype, device)
            loaded = Loaded(self._known_as, model, config, tokenizer, self._worker.check)
            with torch.inference_mode():
                self._tree = tree_works(loaded)
            self._loaded = loaded.watched()
        return self._loaded

    # scoring and generation

    def _too_long(self, tokens: int) -> Failure | None:
        limit = self.context_tokens
        if limit is None or tokens <= limit:
            return None
        return Failure("context", f"{tokens:,} tokens, the model's context has {limit:,}")

    def _score_all(self, loaded: Loaded, requests: Mapping[int, Request]) -> Iterator[Mapping[int, Result]]:
        """Results by position, those that finish together in one mapping."""
        scored: list[Scored] = []
        failed: dict[int, Result] = {}
        for i, request in requests.items():
            try:
                rows = encode_options(loaded.tokenizer, i, request.prompt)
            except Unrendered as error:
                failed[i] = Failure("request", error.what)
                continue
            if not rows:
                failed[i] = Failure("request", "nothing to score: the prompt has no choices")
            elif any(row.split >= len(row.ids) or row.split < 1 for row in rows):
                failed[i] = Failure("request", "an option or the prompt has no tokens of its own")
            elif too_long := self._too_long(max(len(row.ids) for row in rows)):
                failed[i] = too_long
            else:
                scored.extend(rows)
        if failed:
            yield failed
        if not scored:
            return
        by_request: dict[int, dict[int, Score]] = {}
        start = time.monotonic()
        for scores in (score_tree if self._tree else score_rows)(loaded, scored):
            for score in scores:
                by_request.setdefault(score[0].request, {})[score[0].option] = score
            whole = [i for i, options in by_request.items() if len(options) == len(requests[i].prompt.choices)]
            share = (time.monotonic() - start) / max(len(whole), 1)
            if whole:
                yield {i: self._scored(requests[i].prompt, by_request.pop(i), share) for i in whole}
                start = time.monotonic()

    def _scored(self, prompt: Prompt, options: Mapping[int, Score], latency: float) -> Answer:
        scores = [options[i] for i in range(len(prompt.choices))]
        totals = [sum(values) for _, values in scores]
        return Answer(
            text=prompt.choices[totals.index(max(totals))],
            option_logprobs=tuple(values for _, values in scores),
            tokens_in=scores[0][0].split + sum(len(row.ids) - row.split for row, _ in scores),
            latency=latency,
            model=self._known_as,
        )

    def _generate_all(self, loaded: Loaded, requests: Mapping[int, Request]) -> Iterator[Mapping[int, Result]]:
        """Generate answers, together for prompts that begin alike."""
        asked: list[Generation] = []
        failed: dict[int, Result] = {}
        for i, request in requests.items():
            try:
                text, chat = render(loaded.tokenizer, request.prompt)
            except Unrendered as error:
                failed[i] = Failure("request", error.what)
                continue
            ids = encode(loaded.tokenizer, text, chat)
            if too_long := self._too_long(len(ids) + request.sampling.max_tokens):
                failed[i] = too_long
            elif not ids:
                failed[i] = Failure("request", "the prompt has no tokens")
            else:
                own = chat or request.prompt.stop or request.prompt.reasons
                stops = request.sampling.stop if own else (BLOCK_END, *request.sampling.stop)
                alone = request.prompt.one_line and not request.prompt.reasons
                if alone and after_thinking(text) is not None:  # else it goes on thinking
                    stops = (*stops, "\n")
                opened, generator = opened_thought(text) if chat else "", generator_of(request.sampling, text)
                asked.append(Generation(i, ids, request.sampling, stops, generator, opened))
        if failed:
            yield failed
        if asked:
            yield from generate(loaded, asked, self._tree)
