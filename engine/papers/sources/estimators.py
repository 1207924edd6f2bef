"""The estimators of source importance: scores of sources from ranked lists.

``estimator(lists, k) -> (C,) float64``: the higher, the more a source helps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ...base.arrays import Bools, Float64s, compiled
from ...base.progress import SILENT, Event, Monitor
from ...trials.estimators import DELTA, EPSILON_SAMPLED
from ...trials.lists import RankedLists
from ...trials.votes import vote_marginals
from .gradient import Accumulator, checked_k, checked_weights


def grouped_gradient(lists: RankedLists, weights: npt.ArrayLike, k: int) -> Float64s:
    """(C,) gradient of the mean Ũ(weights) over the lists. Raises ValueError as `gradient` does."""
    at = checked_weights(weights)
    if len(at) != len(lists.names):
        raise ValueError(f"weights must be {len(lists.names)} probabilities, not {len(at)}")
    sums = np.zeros(len(at))
    _kernel()(lists.sources, lists.utilities, lists.offsets, at, checked_k(k), sums)
    return sums / (k * max(1, len(lists)))


@cache
def _kernel() -> Callable[..., None]:
    def run(sources: Any, utilities: Any, offsets: Any, weights: Any, k: int, sums: Any) -> None:
        longest = 0
        for n in range(len(offsets) - 1):
            longest = max(longest, offsets[n + 1] - offsets[n])
        met = np.zeros(longest, np.int64)
        items = np.zeros(longest, np.int64)  # c_h
        place = np.full(len(weights), -1, np.int64)
        forward = np.zeros((longest + 1, k))  # Pr[sum = j] over the first sources
        backward = np.zeros((longest + 1, k + 1))  # Pr[sum < j] over the others
        for n in range(len(offsets) - 1):
            distinct = 0
            for i in range(offsets[n], offsets[n + 1]):
                g = sources[i]
                own = items[place[g]] if place[g] >= 0 else 0
                room = k - own  # the others must contribute fewer than this
                if room > 0:
                    forward[0, 0] = 1.0
                    for j in range(1, room):
                        forward[0, j] = 0.0
                    for s in range(distinct):
                        c, w = items[s], weights[met[s]]
                        for j in range(room):
                            p = forward[s, j]
                            if met[s] != g:
                                p = (1 - w) * p + (w * forward[s, j - c] if j >= c else 0.0)
                            forward[s + 1, j] = p
                    for j in range(room + 1):
                        backward[distinct, j] = 1.0 if j > 0 else 0.0
                    for s in range(distinct - 1, -1, -1):
                        c, w = items[s], weights[met[s]]
                        for j in range(room + 1):
                            p = backward[s + 1, j]
                            if met[s] != g:
                                p = (1 - w) * p + (w * backward[s + 1, j - c] if j >= c else 0.0)
                            backward[s, j] = p
                    sums[g] += utilities[i] * backward[0, room]
                    for s in range(distinct):
                        h = met[s]
                        if h == g:
                            continue
                        c = items[s]
                        change = 0.0  # Pr[fewer than room | h in] − Pr[… | h out]
                        for j in range(room):
                            rest = room - j
                            within = backward[s + 1, rest - c] if rest >= c else 0.0
                            change += forward[s, j] * (within - backward[s + 1, rest])
                        sums[h] += weights[g] * utilities[i] * change
                if place[g] < 0:
                    place[g] = distinct
                    met[distinct] = g
                    items[distinct] = 0
                    distinct += 1
                items[place[g]] += 1
            for s in range(distinct):
                place[met[s]] = -1

    return compiled(run)


Gradient = Callable[[Float64s], Float64s]

RATE, EPOCHS, START = 500.0, 50, 0.5  # paper 003, section 3: question answering
WHOLE_RATE, WHOLE_EPOCHS = 1.0, 20  # where a step is a whole source's, not one of its many documents'


def multilinear(
    lists: RankedLists,
    k: int,
    *,
    rate: float = RATE,
    epochs: int = EPOCHS,
) -> Float64s:
    """(C,) weights in [0, 1] that maximise the mean multilinear extension (paper 003, section 2.4).

    Each document takes a gradient step and is clipped to [0, 1]; then every document of a source gets their mean. The
    gradient is a mean over lists, so the appropriate rate depends on the number of sources rather than on the number of
    lists.
    """
    starts = lists.offsets[:-1]
    lengths = lists.lengths

    def gradient(weights: Float64s) -> Float64s:
        total = Accumulator(weights, k)
        total.add(lists.documents, lists.utilities, starts, lengths)
        return total.gradient()

    return ascend(gradient, lists.source_of, len(lists.names), rate, epochs)


def grouped(lists: RankedLists, k: int, *, rate: float = WHOLE_RATE, epochs: int = WHOLE_EPOCHS) -> Float64s:
    """(C,) weights by the same ascent on the exact gradient for whole sources in or out (appendix C)."""
    count = len(lists.names)
    return ascend(partial(grouped_gradient, lists, k=k), np.arange(count, dtype=np.int32), count, rate, epochs)


def ascend(
    gradient: Gradient,
    source_of: np.ndarray[tuple[int], np.dtype[np.int32]],
    sources: int,
    rate: float = RATE,
    epochs: int = EPOCHS,
    monitor: Monitor = SILENT,
) -> Float64s:
    """Projected gradient ascent on one weight per source, from START (paper 003, equation 6).

    ``gradient`` maps (D,) document weights to their (D,) gradient; ``source_of`` (D,) is the source of each document. A
    source without documents keeps START. Raises `Cancelled` between epochs.
    """
    weights = np.full(sources, START)
    documents = np.bincount(source_of, minlength=sources)
    for epoch in range(epochs):
        monitor.check()
        # equation 6: a step of each document, clipped; then the mean of those of a source
        stepped = np.clip(weights[source_of] + rate * gradient(weights[source_of]), 0.0, 1.0)
        means = np.bincount(source_of, stepped, sources) / np.maximum(documents, 1)
        weights = np.where(documents > 0, np.clip(means, 0.0, 1.0), weights)
        monitor.report(Event("learn", epoch + 1, epochs))
    return weights


@dataclass(frozen=True, slots=True)
class SampledGradient:
    """A Monte-Carlo estimate: ``gradient`` (C,), number of ``samples`` drawn, the ``bound`` on samples that the
    guarantee may need, and ``error`` (C,), the half-widths that hold simultaneously with probability 1 − δ."""

    gradient: Float64s
    samples: int
    bound: int
    error: Float64s


Marginals = Callable[[Bools], Float64s]


def sampled_gradient(
    marginals: Marginals,
    weights: Float64s,
    *,
    epsilon: float = 0.05,
    delta: float = 0.05,
    span: float = 1.0,
    seed: int | np.random.SeedSequence = 0,
    monitor: Monitor = SILENT,
) -> SampledGradient:
    """(ε, δ)-estimate of the gradient of the multilinear extension of any utility (paper 003, section 2.3, appendix D).

    Draws sets S with Pr[s in S] = weights[s] and averages ``marginals(S)`` (C,), each change within ±``span``. With
    probability 1 − δ every one of the C entries is within ε. Hoeffding's inequality needs 2 span² ln(4C/δ)/ε² sets
    (half of δ; a change has a range of 2 span, which explains the paper's 2/ε²); the other half of δ is used for
    stopping early at powers of two, by the empirical Bernstein bound (Maurer and Pontil 2009, theorem 4).
    """
    count = len(weights)
    bound = max(1, math.ceil(2 * span**2 * math.log(4 * max(1, count) / delta) / epsilon**2))
    looks = max(1, bound.bit_length())
    slack = math.log(8 * max(1, count) * looks / delta)
    random = np.random.default_rng(seed)
    mean, squares = np.zeros(count), np.zeros(count)
    error = np.full(count, math.inf)
    n = 0
    while n < bound:
        monitor.check()
        n += 1
        change = marginals(random.random(count) < weights)
        step = change - mean
        mean += step / n
        squares += step * (change - mean)
        if n > 1 and n & (n - 1) == 0:
            error = np.sqrt(2 * squares / (n - 1) * slack / n) + 2 * span * 7 * slack / (3 * (n - 1))
            if (error <= epsilon).all():
                break
    else:
        error = np.full(count, epsilon)
    return SampledGradient(mean, n, bound, error)


def sampled_ascent(
    marginals: Marginals,
    sources: int,
    *,
    rate: float = WHOLE_RATE,
    epochs: int = WHOLE_EPOCHS,
    epsilon: float = EPSILON_SAMPLED,
    delta: float = DELTA,
    span: float = 1.0,
    seed: int = 0,
    monitor: Monitor = SILENT,
) -> Float64s:
    """(C,) weights in [0, 1] that maximise the multilinear extension of any utility of a set of sources.

    The ascent of `ascend` on `sampled_gradient`; its arguments are as there. With probability 1 − δ every entry of
    every epoch's gradient is within ε: each epoch has an equal share of δ. Steps smaller than ``rate`` · ε are noise.
    """
    seeds = iter(np.random.SeedSequence(seed).spawn(epochs))

    def gradient(weights: Float64s) -> Float64s:
        return sampled_gradient(
            marginals, weights, epsilon=epsilon, delta=delta / epochs, span=span, seed=next(seeds), monitor=monitor
        ).gradient

    return ascend(gradient, np.arange(sources, dtype=np.int32), sources, rate, epochs, monitor)


def monte_carlo(
    lists: RankedLists,
    k: int,
    *,
    rate: float = WHOLE_RATE,
    epochs: int = WHOLE_EPOCHS,
    epsilon: float = EPSILON_SAMPLED,
    delta: float = DELTA,
    seed: int = 0,
    monitor: Monitor = SILENT,
) -> Float64s:
    """(C,) weights that maximise the multilinear extension of the majority vote (`votes`), which is not additive: by
    `sampled_ascent`, ``epsilon`` in units of the utilities' range. A source in no list keeps START."""
    values = np.append(lists.utilities, 0.0)  # an empty set has utility 0
    span = max(float(values.max() - values.min()), np.finfo(float).tiny)
    learnt = sampled_ascent(
        lambda present: vote_marginals(lists, present, k), len(lists.names), rate=rate, epochs=epochs,
        epsilon=epsilon * span, delta=delta, span=span, seed=seed, monitor=monitor,
    )  # fmt: skip
    return np.where(lists.hits > 0, learnt, START)
