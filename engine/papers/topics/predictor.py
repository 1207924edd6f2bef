"""The topic predictor: from an embedding to a probability for each topic (paper 004, section 3.1.2).

A three-layer MLP, z = e + W₂·relu(W₁·e + b₁) + b₂ and t̂ = σ(W₃·z + b₃): W₃ is initialised with the scaled embeddings
of the topic names, W₂ with zero and b₃ with the topics' log-odds, so that before the first step the topics are ranked
by cosine. Trained with torch, used with numpy: selection needs no torch, and because e enters as a sum, products that
candidates share are computed once (see `selection`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...base.arrays import Bools, Float32s, Float64s, Int64s, one_blas_thread
from ...base.progress import SILENT, Event, Monitor
from .match import Links
from .results import FitEpoch, RankingQuality

if TYPE_CHECKING:
    import torch


TASK = "train"
SCALE = 10.0
"""Factor on the names' embeddings at initialisation."""

STEPS = 64
"""Minimum steps per epoch, if there are enough texts."""

BLOCK_BYTES = 64 << 20
"""Maximum memory for one block of texts × topics."""


@dataclass(frozen=True, slots=True)
class Predictor:
    """``first`` (h, d), ``first_bias`` (h,), ``second`` (d, h), ``second_bias`` (d,), ``last`` (t, d), ``last_bias``
    (t,); float32."""

    first: Float32s
    first_bias: Float32s
    second: Float32s
    second_bias: Float32s
    last: Float32s
    last_bias: Float32s

    @property
    def topics(self) -> int:
        return len(self.last_bias)

    @property
    def dimension(self) -> int:
        return int(self.first.shape[1])

    def logits(self, vectors: Float32s) -> Float32s:
        """(n, t) from embeddings (n, d)."""
        with one_blas_thread():
            hidden = np.maximum(vectors @ self.first.T + self.first_bias, 0)  # relu(W₁·e + b₁)
            inner = vectors + hidden @ self.second.T + self.second_bias  # z
            return np.asarray(inner @ self.last.T + self.last_bias)  # W₃·z + b₃

    def predict(self, vectors: Float32s) -> Float32s:
        """t̂ (n, t) from embeddings (n, d)."""
        return sigmoid(self.logits(vectors))

    @property
    def block(self) -> int:
        """Texts whose predictions have `BLOCK_BYTES`."""
        return max(1, BLOCK_BYTES // (4 * max(self.topics, 1)))

    def blocks(self, vectors: Float32s) -> Iterator[tuple[slice, Float32s]]:
        """`predict` in blocks of bounded size; ``vectors`` may be a memory map."""
        size = self.block
        for start in range(0, len(vectors), size):
            span = slice(start, min(start + size, len(vectors)))
            yield span, self.predict(np.asarray(vectors[span]))


def sigmoid(logits: Float32s) -> Float32s:
    """1 / (1 + exp(−x)) without overflow."""
    return np.asarray(np.exp(-np.logaddexp(np.float32(0), -logits)), np.float32)


def started(names: Float32s, base_rates: Float32s, seed: int = 0) -> Predictor:
    """The predictor before training: ``names`` (t, d) embeddings of the topic names, ``base_rates`` (t,) the share of
    texts each topic is core to."""
    d = names.shape[1]
    rng = np.random.default_rng([seed, 3])
    bound = 1 / np.sqrt(d)
    rates = np.clip(base_rates, 1e-5, 0.5)
    return Predictor(
        rng.uniform(-bound, bound, (d, d)).astype(np.float32),
        np.zeros(d, np.float32),
        np.zeros((d, d), np.float32),
        np.zeros(d, np.float32),
        (SCALE * names).astype(np.float32),
        np.log(rates / (1 - rates)).astype(np.float32),
    )


MOST_BATCH = 128
"""Texts per step at most; a small pool is divided into `STEPS` steps per epoch."""
PATIENCE = 2
"""Epochs without a lower held-out loss before training stops."""


def fit(
    predictor: Predictor,
    vectors: Float32s,
    targets: Links,
    held_out: Bools,
    epochs: int = 30,
    rate: float = 1e-3,
    seed: int = 0,
    monitor: Monitor = SILENT,
) -> tuple[Predictor, list[FitEpoch]]:
    """Train by eq. 4 on the texts that are not ``held_out`` (n,), by Adam with this ``rate``; keep the epoch with the
    lowest held-out loss.

    ``vectors`` (n, d), ``targets`` the soft targets of the n texts. Returns the predictor and every epoch's losses.
    The loss matrix exists for one batch at a time.
    """
    import torch

    parameters = [torch.tensor(getattr(predictor, name), requires_grad=True) for name in FIELDS]
    optimiser = TorchAdam(parameters, rate)
    train, judge = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    batch = max(1, min(MOST_BATCH, len(train) // STEPS))
    rng = np.random.default_rng([seed, 4])
    best, lowest, stale = predictor, np.inf, 0
    history: list[FitEpoch] = []

    def loss_on(which: Int64s) -> torch.Tensor:
        e = torch.from_numpy(np.ascontiguousarray(vectors[which]))
        w1, b1, w2, b2, w3, b3 = parameters
        logits = (e + torch.relu(e @ w1.T + b1) @ w2.T + b2) @ w3.T + b3
        own = targets.some(which)
        return eq4(logits, *(torch.as_tensor(part) for part in (own.texts(), own.topics, own.weights)))

    with _one_torch_thread():
        for epoch in range(epochs):
            order = rng.permutation(train)
            total = 0.0
            for start in range(0, len(order), batch):
                monitor.check()
                which = order[start : start + batch]
                loss = loss_on(which)
                optimiser.step(torch.autograd.grad(loss / len(which), parameters))
                total += float(loss.detach())
            with torch.no_grad():
                judged = sum(float(loss_on(judge[i : i + MOST_BATCH])) for i in range(0, len(judge), MOST_BATCH))
            trained = total / max(len(train), 1)
            figures = FitEpoch(epoch, trained, judged / len(judge) if len(judge) else trained)
            history.append(figures)
            monitor.report(Event(TASK, epoch + 1, epochs, fields=asdict(figures)))
            stale = 0 if figures.held_out_loss < lowest else stale + 1
            if not stale:
                lowest = figures.held_out_loss
                best = replace(
                    predictor,
                    **{name: value.detach().numpy().copy() for name, value in zip(FIELDS, parameters, strict=True)},
                )
            if stale >= PATIENCE:
                break
    return best, history


class TorchAdam:
    """Adam (Kingma & Ba 2015, algorithm 1) by the operations of `torch.optim.Adam`, in their order. That class imports
    torch's compiler when it is first used, which takes seconds."""

    BETAS, EPSILON = (0.9, 0.999), 1e-8

    def __init__(self, parameters: Sequence[torch.Tensor], rate: float) -> None:
        self._parameters, self._rate, self._steps = parameters, rate, 0
        self._means = [value.detach().new_zeros(value.shape) for value in parameters]
        self._squares = [value.detach().new_zeros(value.shape) for value in parameters]

    def step(self, gradients: Sequence[torch.Tensor]) -> None:
        """Change the parameters; ``gradients`` are in their order."""
        import torch

        self._steps += 1
        first, second = self.BETAS
        by_first, by_second = 1 - first**self._steps, 1 - second**self._steps
        with torch.no_grad():
            for value, gradient, mean, square in zip(
                self._parameters, gradients, self._means, self._squares, strict=True
            ):
                mean.lerp_(gradient, 1 - first)
                square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
                spread = (square.sqrt() / by_second**0.5).add_(self.EPSILON)
                value.addcdiv_(mean, spread, value=-self._rate / by_first)


def eq4(logits: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Eq. 4 summed over a batch: −Σ t·log t̂ over core topics − Σ log(1 − t̂) over all others.

    ``logits`` (n, t); the core topics are at (``rows``, ``columns``) with soft targets ``weights``, all (m,).
    """
    from torch.nn.functional import softplus

    core = logits[rows, columns]  # with −log t̂ = softplus(−x) and −log(1 − t̂) = softplus(x)
    return softplus(logits).sum() + (weights * softplus(-core) - softplus(core)).sum()


def quality(predictor: Predictor, vectors: Float32s, core: Links, which: Int64s) -> RankingQuality:
    """Mean average precision of all topics ranked by t̂ against the core topics, and recall among the first ten,
    over the texts ``which`` that have core topics."""
    return ranking_quality(lambda at: predictor.logits(np.asarray(vectors[at])), core, which)


def ranking_quality(score: Callable[[Int64s], Float32s], core: Links, which: Int64s, first: int = 10) -> RankingQuality:
    """As `quality` for any ``score`` from text numbers (n,) to topic scores (n, t)."""
    precisions, recalls = [], []
    for start in range(0, len(which), 512):
        block = which[start : start + 512]
        scores = score(block)
        for text, row in zip(block.tolist(), scores, strict=True):
            wanted = np.unique(core.of(text))
            if not len(wanted):
                continue
            # rank of a topic: the number of higher scores, and of earlier ones with an equal score
            own = row[wanted]
            ranks = np.sort([(row > s).sum() + (row[:t] == s).sum() for t, s in zip(wanted.tolist(), own, strict=True)])
            precisions.append(float((np.arange(1, len(ranks) + 1) / (ranks + 1)).mean()))
            recalls.append(float((ranks < first).mean()))
    if not precisions:
        return RankingQuality(0.0, 0.0)
    return RankingQuality(float(np.mean(precisions)), float(np.mean(recalls)))


FIELDS = ("first", "first_bias", "second", "second_bias", "last", "last_bias")


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """For products this small, threads cost more time in waiting than they save."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


CLIP = (0.1, 0.9)
"""Bounds of knowledge (those of the released code): eq. 6 divides by it."""

PRIOR = 4.0
"""Weight of the mean over all topics in the shrinkage, in observations."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """t_LM (``share``) of each topic and Σ t̂_d,t over the questions asked (``observations``), both (t,)."""

    share: Float32s
    observations: Float32s


def topical_knowledge(predictor: Predictor, vectors: Float32s, values: Float64s, prior: float = PRIOR) -> Knowledge:
    """Eq. 5 over questions with embeddings ``vectors`` (n, d) and the ``values`` (n,), 0 to 1, of the LLM's answers.

    Shrunk towards their mean with the weight of ``prior`` observations (0: the equation as printed), and
    clipped to `CLIP`. Without questions the knowledge of every topic is one half.
    """
    weighted = np.zeros(predictor.topics)
    total = np.zeros(predictor.topics)
    for span, predicted in predictor.blocks(vectors):
        total += predicted.sum(axis=0, dtype=np.float64)
        worth = np.flatnonzero(values[span] > 0)
        weighted += (predicted[worth] * values[span][worth, None]).sum(axis=0, dtype=np.float64)
    mean = float(values.mean()) if len(values) else 0.5
    share = (weighted + prior * mean) / np.maximum(total + prior, 1e-12)  # eq. 5: Σ t̂ u / Σ t̂
    return Knowledge(np.clip(share, *CLIP).astype(np.float32), total.astype(np.float32))
