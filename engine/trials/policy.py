"""The ranking policy: one linear layer over frozen embeddings, its loss and exact gradient, and its file.

Paper 000, section 5.1: h(x) = W·e(x) + b, S_θ(d|p) = softmax over the candidates of h(d)·h(p) (eq. 4). The softmax is
invariant to terms that all candidates share, so with u = Wᵀ·h(p) the logits are e(d)·u: no candidate is ever projected,
and the gradient needs the candidates' embeddings only in one weighted sum. Everything is float64 in numpy on one
thread: the same numbers on every run, and a batch takes a millisecond.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..base import contract
from ..base.arrays import Bools, Float64s, Int64s, one_blas_thread, step_of, top_k
from ..base.errors import UsageError
from ..base.files import replace_file

DIMENSION = 128
"""Outputs of the linear layer: the paper's P."""

WEIGHTS, HEAD = "ranker.safetensors", "ranker.json"
FORMATS = 1, 2
"""Format 1, of earlier releases, has no view of what its policy was trained with."""

CandidatesFrom = Literal["bm25", "dense", "both"]
Sees = Literal["input", "row"]
Start = Literal["similarity", "random"]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a policy chooses from and what it sees of it; training and selection must agree on it.

    ``candidates`` demonstrations by ``ranking``; of each the embedding of its input or of the whole ``row`` (input and
    output, the paper's e = (x, y)), and which of ``sources`` it is from. The logits are divided by ``temperature``.
    The defaults are those of a policy of an earlier release.
    """

    candidates: int = 20
    ranking: CandidatesFrom = "bm25"
    sees: Sees = "input"
    sources: tuple[str, ...] = ()
    temperature: float = 1.0
    start: Start = "similarity"


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of queries: ``queries`` (q, d) and ``vectors`` (q, c, d) embeddings; ``present`` (q, c) is false
    if a query has fewer than c candidates."""

    queries: NDArray[np.floating[Any]]
    vectors: NDArray[np.floating[Any]]
    present: Bools


@dataclass(frozen=True, slots=True)
class Policy:
    """``weight`` (P, d) and ``bias`` (P,), both float64."""

    weight: Float64s
    bias: Float64s

    @classmethod
    def start(cls, vectors: NDArray[np.floating[Any]], outputs: int = DIMENSION, extra: int = 0) -> Policy:
        """The initial projection, onto the leading directions of ``vectors`` (n, d), which preserves most of their
        similarity.

        Training so starts from the ranking by embedding similarity instead of a random one; if training does not
        improve it, it is still a reasonable policy. There are at most as many outputs as inputs.

        The weights of ``extra`` further inputs are 0, and there is one more output for them, with weights 0 and bias 1:
        what it learns adds to the score of a demonstration whatever the query is.
        """
        with one_blas_thread():
            kept = np.asarray(vectors, np.float64)
            _, directions = np.linalg.eigh(kept.T @ kept)
        weight = np.ascontiguousarray(directions[:, ::-1].T[:outputs])
        if not extra:
            return cls(weight, np.zeros(len(weight)))
        return cls(np.pad(weight, ((0, 1), (0, extra))), np.append(np.zeros(len(weight)), 1.0))

    @classmethod
    def random(cls, inputs: int, outputs: int = DIMENSION, seed: int = 0) -> Policy:
        """Weights and bias drawn from U(−1/√inputs, 1/√inputs), the default of a linear layer in PyTorch."""
        rng, most = np.random.default_rng(seed), inputs**-0.5
        return cls(rng.uniform(-most, most, (outputs, inputs)), rng.uniform(-most, most, outputs))

    def scores(self, candidates: Candidates) -> Float64s:
        """S_θ (q, c): each row sums to 1, 0 where no candidate is present."""
        with one_blas_thread():
            return np.exp(_log_shares(self._logits(candidates, self._hidden(candidates)), candidates.present))

    def steps(self, candidates: Candidates) -> Float64s:
        """What float32 vectors do not tell in the logits of each query, (q,)."""
        with one_blas_thread():
            reach = np.linalg.norm(self._hidden(candidates) @ self.weight, axis=1)
        longest = np.linalg.norm(candidates.vectors, axis=2).max(axis=1, initial=0)
        return np.array([step_of(self.weight.shape[1], size) for size in (reach * longest).tolist()])

    def loss(self, candidates: Candidates, credit: Float64s) -> tuple[float, Float64s, Float64s]:
        """L = −Σ credit · log S_θ and its gradient with respect to weight and bias.

        ``credit`` (q, c) is the reward assigned to each candidate, 0 for those not shown (paper 000, eq. 9).
        """
        with one_blas_thread():
            hidden = self._hidden(candidates)
            log_shares = _log_shares(self._logits(candidates, hidden), candidates.present)
            pull = np.exp(log_shares) * credit.sum(axis=1, keepdims=True) - credit  # ∂L/∂logits; rows sum to 0
            vectors = np.asarray(candidates.vectors, np.float64)
            mixed = np.matmul(pull[:, None, :], vectors)[:, 0, :]  # (q, d)
            by_hidden = mixed @ self.weight.T  # ∂L/∂h(p); the bias in h(d) cancels in the row sums
            queries = np.asarray(candidates.queries, np.float64)
            loss = -float(np.sum(credit * np.where(candidates.present, log_shares, 0.0)))
            return loss, hidden.T @ mixed + by_hidden.T @ queries, by_hidden.sum(axis=0)

    def _hidden(self, candidates: Candidates) -> Float64s:
        return np.asarray(candidates.queries, np.float64) @ self.weight.T + self.bias  # h(p) = W·e(p) + b

    def _logits(self, candidates: Candidates, hidden: Float64s) -> Float64s:
        reach = hidden @ self.weight  # u: eq. 4 without what all candidates share
        return np.asarray(np.matmul(np.asarray(candidates.vectors, np.float64), reach[:, :, None])[:, :, 0])


def _log_shares(logits: Float64s, present: Bools) -> Float64s:
    masked = np.where(present, logits, -np.inf)
    shifted = masked - masked.max(axis=1, keepdims=True)
    shares: Float64s = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shares


def entropy(scores: Float64s) -> Float64s:
    """Entropy in nats of each row of S_θ, (q,)."""
    logs = np.log(scores, out=np.zeros_like(scores), where=scores > 0)
    return np.asarray(-(scores * logs).sum(axis=1))


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1) over arrays that are passed in at every step."""

    DECAY, EPSILON = (0.9, 0.999), 1e-8

    def __init__(self, rate: float) -> None:
        self.rate, self.steps = rate, 0
        self._moments: list[tuple[Float64s, Float64s]] = []

    def step(self, values: tuple[Float64s, ...], gradients: tuple[Float64s, ...]) -> tuple[Float64s, ...]:
        """The values one step down their gradients."""
        if not self._moments:
            self._moments = [(np.zeros_like(value), np.zeros_like(value)) for value in values]
        self.steps += 1
        first, second = self.DECAY
        moved = []
        for i, (value, gradient) in enumerate(zip(values, gradients, strict=True)):
            mean, square = self._moments[i]
            mean = first * mean + (1 - first) * gradient
            square = second * square + (1 - second) * np.square(gradient)
            self._moments[i] = mean, square
            unbiased = mean / (1 - first**self.steps)
            moved.append(value - self.rate * unbiased / (np.sqrt(square / (1 - second**self.steps)) + self.EPSILON))
        return tuple(moved)


@dataclass(frozen=True, slots=True)
class RankerMetadata:
    """What is needed to use a policy elsewhere: ``method`` is ranker or promptpg, ``encoder`` and ``dimension``
    describe its embeddings, ``inputs`` what it chooses from and sees. ``untrained``: it is the start of its training,
    which no epoch improved; None if an earlier release trained it."""

    method: str
    encoder: str
    dimension: int
    inputs: Inputs
    llm: str
    seed: int
    settings: Mapping[str, Any]
    untrained: bool | None = None


def save(folder: Path, policy: Policy, metadata: RankerMetadata) -> None:
    """Write the policy as safetensors and its metadata as JSON; the metadata, written last, marks it as complete."""
    from safetensors.numpy import save as to_bytes

    arrays = {"weight": np.ascontiguousarray(policy.weight), "bias": np.ascontiguousarray(policy.bias)}
    content = to_bytes(arrays)
    replace_file(folder / WEIGHTS, lambda file: file.write(content))
    described = {
        "format": FORMATS[-1],
        "weights": _digest(content),
        "method": metadata.method,
        "encoder": metadata.encoder,
        "inputs": metadata.dimension,
        "outputs": len(policy.bias),
        **contract.to_json(metadata.inputs),
        "llm": metadata.llm,
        "seed": metadata.seed,
        "settings": dict(metadata.settings),
        "untrained": metadata.untrained,
    }
    text = json.dumps(described, indent=2, sort_keys=True)
    replace_file(folder / HEAD, lambda file: file.write(text.encode()))


def load(folder: Path) -> tuple[Policy, RankerMetadata]:
    """Read what `save` wrote. Raises `UsageError` if there is no complete ranker of a known format, or if it was
    changed."""
    from safetensors.numpy import load as from_bytes

    try:
        described = json.loads((folder / HEAD).read_text(encoding="utf-8"))
        if described["format"] not in FORMATS:
            raise ValueError(f"format {described['format']}")
        content = (folder / WEIGHTS).read_bytes()
        if described["weights"] != _digest(content):
            raise ValueError(f"{WEIGHTS} does not match {HEAD}")
        arrays = from_bytes(content)
        policy = Policy(arrays["weight"], arrays["bias"])
        metadata = RankerMetadata(
            described["method"],
            described["encoder"],
            int(described["inputs"]),
            contract.from_json(Inputs, described),
            described["llm"],
            int(described["seed"]),
            described["settings"],
            described.get("untrained"),
        )
        width = metadata.dimension + len(metadata.inputs.sources)
        if policy.weight.shape != (int(described["outputs"]), width) or policy.bias.shape != (len(policy.weight),):
            raise ValueError(f"weights of shape {policy.weight.shape}")
        if not (np.isfinite(policy.weight).all() and np.isfinite(policy.bias).all()):
            raise ValueError("weights are not finite")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"no usable ranker in {folder}: {error}", "icl-curate train ranker") from error
    except Exception as error:  # safetensors' own error type is not a ValueError
        raise UsageError(f"the ranker in {folder} is damaged: {error}", "icl-curate train ranker") from error
    return policy, metadata


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


Positions = Int64s


def top_candidates(scores: Float64s, present: Bools, most: int, steps: Float64s) -> list[Positions]:
    """Positions of each row's best candidates, best first; ties go to the earlier one, the better by BM25. ``steps``
    (q,) are what the logarithms of the scores (q, c) do not tell (`Policy.steps`)."""
    logs = np.log(np.maximum(scores, np.finfo(np.float64).tiny))
    return [
        places[top_k(row[places], most, step)]
        for row, step, places in zip(logs, steps.tolist(), map(np.flatnonzero, present), strict=True)
    ]
