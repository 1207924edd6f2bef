"""How often a race prunes by chance, and how often it finds a true gain, by the kind of the metric's values.

    python benchmarks/levels.py [--races 2000] [--queries 20,40,60,120,200] [--values 'as ROUGE']

Three candidates race against keeping everything. Under "chance" all are as good as it is; under a gain one of them is
better by it on average. ``before`` takes 1 for what one query may lose, whatever the metric; ``now`` the largest value
that was seen (`span_of`). Where that is 1, as it is for right and wrong, both rules are one.

    python benchmarks/levels.py --calls 125

Races of two prunings, one of them named beforehand, that have so many calls: how often they prune then, how often if a
race in which something gained goes on with as many calls again, as in `curate`, and how often with another race after
it, of three candidates that do not gain.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from itertools import product
from unittest import mock

import numpy as np
from icl_curate.engine.base.arrays import Bools, Float64s
from icl_curate.engine.curate import race as racing
from icl_curate.engine.curate.tune import NOISE

CANDIDATES = 3
CHANGED = 0.5
"""Share of the queries that a candidate answers anew; on the others it has the value of the baseline."""

GAINS = (0.0, 0.03, 0.05, 0.08)
Draw = Callable[[np.random.Generator, int, float], tuple[Float64s, Bools]]
"""The values (1 + candidates, queries) of a race in which the last candidate is better by a gain, and where a candidate
has another prompt than the baseline."""


def redrawn(fresh: Callable[[np.random.Generator, tuple[int, int]], Float64s], mean: float) -> Draw:
    """Values that a candidate has from the baseline or draws anew; of the better one some are 1 instead."""

    def draw(rng: np.random.Generator, queries: int, gain: float) -> tuple[Float64s, Bools]:
        values = np.repeat(fresh(rng, (1, queries)), 1 + CANDIDATES, axis=0)
        anew = rng.random(values.shape) < CHANGED
        anew[0] = False
        values[anew] = fresh(rng, values.shape)[anew]
        lifted = anew[-1] & (rng.random(queries) < gain / CHANGED / (1 - mean))
        values[-1, lifted] = 1.0
        return values, anew

    return draw


def right(rng: np.random.Generator, shape: tuple[int, int]) -> Float64s:
    return (rng.random(shape) < 0.6).astype(np.float64)


def f1(rng: np.random.Generator, shape: tuple[int, int]) -> Float64s:
    """A third each of nothing in common, all in common, and something between."""
    return np.clip(rng.uniform(-1, 2, shape), 0, 1)


def rouge(rng: np.random.Generator, queries: int, gain: float) -> tuple[Float64s, Bools]:
    """About .3 for every query, .05 more or less by the prompt."""
    values = rng.normal(0.3, 0.1, queries) + rng.normal(0, 0.05, (1 + CANDIDATES, queries))
    values[-1] += gain
    return np.clip(values, 0, 1), np.ones(values.shape, np.bool_)


def rarely_lost(rng: np.random.Generator, queries: int, gain: float) -> tuple[Float64s, Bools]:
    """.04 more on nineteen queries of twenty, nearly all lost on the last: few queries do not show the loss."""
    base = rng.uniform(0.76, 0.9, queries)
    change = np.where(rng.random((1 + CANDIDATES, queries)) < 0.05, -0.76, 0.04)
    change[0] = 0.0
    change[-1] += gain
    return np.clip(base + change, 0, 1), np.ones(change.shape, np.bool_)


METRICS: Mapping[str, Draw] = {
    "right or wrong": redrawn(right, 0.6),
    "as F1": redrawn(f1, 0.5),
    "as ROUGE": rouge,
    "rarely lost": rarely_lost,
}
BELOW_1 = ("as ROUGE", "rarely lost")
"""The other values have 1 among them, which makes both rules one."""


def prunes(values: Float64s, seed: int) -> bool:
    """Whether the race of these values confirms a gain."""
    preference = -np.arange(len(values), dtype=np.float64)
    return racing.race(lambda wanted: values, preference, values.shape[1], seed=seed).confirmed(NOISE)


def looks(values: Float64s, anew: Bools, later: Float64s, seed: int, calls: int, named: int) -> tuple[bool, bool, bool]:
    """Whether a race of the baseline and two candidates prunes within its ``calls``, whether it does if it may go on,
    and whether the run does, which then races others (``later``). Only prompts that are ``anew`` take a call of their
    own."""
    distinct = np.arange(values.size).reshape(values.shape)
    distinct = np.where(anew, distinct, distinct[0])
    asked, most = set[int](), calls

    def ask(wanted: Bools) -> Float64s | None:
        now = asked | set(distinct[wanted].tolist())
        if len(now) > most:
            return None
        asked.update(now)
        return values

    def raced(given: racing.Ask, rivals: int, which: int, care: float = 1.0) -> racing.RaceResult:
        preference = (np.arange(rivals) == which).astype(np.float64)
        return racing.race(given, preference, values.shape[1], near=racing.NEAR, seed=seed, named=which, care=care)

    found = raced(ask, 3, named)
    whole, care = found.confirmed(NOISE), 1.0
    once = whole
    if found.stopped and not once and found.winner and found.gain.mean > 0:
        most *= 2
        whole, care = raced(ask, 3, named).confirmed(NOISE), racing.AFTER_TWO_LOOKS
    return once, whole, whole or raced(lambda wanted: later, len(later), 0, care).confirmed(NOISE)


def limited(options: argparse.Namespace, counts: list[int]) -> None:
    """The table of races with few calls: prunes at the first look → by the second → by another race of the run."""
    print("| values | gain | named | " + " | ".join(f"{count} queries" for count in counts) + " |")
    print("|---|---|---|" + "---|" * len(counts))
    for name in options.values or METRICS:
        for gain, named in [pair for pair in product(GAINS, (2, 1)) if pair != (0.0, 1)]:
            cells = []
            for count in counts:
                rng, shares = np.random.default_rng(0), []
                for seed in range(options.races):
                    values, anew = METRICS[name](rng, count, gain)
                    later, _ = METRICS[name](rng, count, 0.0)
                    shares.append(looks(values[[0, -2, -1]], anew[[0, -2, -1]], later, seed, options.calls, named))
                cells.append(" → ".join(f"{share:.1%}" for share in np.mean(shares, axis=0)))
            which = "–" if not gain else "the better one" if named == 2 else "the other"
            print(f"| {name} | {gain or 'chance'} | {which} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", type=int, default=2000)
    parser.add_argument("--queries", default="20,40,60,120,200")
    parser.add_argument("--values", choices=METRICS, action="append")
    parser.add_argument("--calls", type=int, help="calls of a race that may go on")
    options = parser.parse_args()
    begun = time.monotonic()
    counts = [int(count) for count in options.queries.split(",")]
    if options.calls:
        limited(options, counts)
        return
    print("| values | gain | rule | " + " | ".join(f"{count} queries" for count in counts) + " |")
    print("|---|---|---|" + "---|" * len(counts))
    for name in options.values or METRICS:
        for gain in GAINS:
            shares: dict[str, list[float]] = {"before": [], "now": []}
            for count in counts:
                rng = np.random.default_rng(0)
                drawn = [METRICS[name](rng, count, gain)[0] for _ in range(options.races)]
                shares["now"].append(np.mean([prunes(values, seed) for seed, values in enumerate(drawn)]))
                if name in BELOW_1:
                    with mock.patch.object(racing, "span_of", lambda utilities: 1.0):
                        shares["before"].append(np.mean([prunes(values, seed) for seed, values in enumerate(drawn)]))
            for rule, each in shares.items():
                if each:
                    cells = " | ".join(f"{share:.1%}" for share in each)
                    print(f"| {name} | {gain or 'chance'} | {rule} | {cells} |", flush=True)
    print(f"{options.races:,} races each, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
