"""Outputs of free text that do not belong to their inputs, such as answers moved to other rows.

Where outputs are made from their inputs (extraction, questions with a passage, rewriting), the right output shares
words with its input that few other outputs share. Each row's output is compared with a sample of other rows' outputs by
the cosine of tf-idf vectors with the row's input and context. Its rank among them is uniform if the output has nothing
to do with the input, and near 0 if it was made from it; the ranks of all rows are a mixture of the two. The share of
the first kind is estimated from the high ranks (Storey 2002), and with it the probability that a rank is of the first
kind (the local false discovery rate of Efron et al. 2001).

Where most right outputs share no rare words with their inputs (questions answered from memory), ranks tell nothing, and
no row is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base.arrays import Float64s
from ..base.progress import SILENT, Monitor
from ..pool.records import Demonstration
from ..retrieval.bm25 import tokenise

OTHERS = 256
"""Maximum number of other outputs that each output is compared with."""

LEAST = 30
"""With fewer rows the mixture cannot be estimated."""

RECURRING = 5
"""An output that this many rows share, such as ``yes``, is a class: it belongs to no single input."""

LOW = 0.1
"""Ranks up to here count as low."""

VISIBLE, EXPLAINED = 0.3, 0.9
"""Ranks are used if at least this share of all rows is low beyond chance, and at least this share of those rows whose
outputs are estimated to belong to their inputs."""

SURE = 0.9
"""Probability from which a row is named."""

BINS = 20

FLOOR = 0.02
"""Least density of ranks of right outputs, where 1 is uniform: some right outputs share no word with their input."""

BLOCK = 8_192


@dataclass(frozen=True, slots=True)
class Mismatches:
    """``ranks`` (n,): the share of other outputs that fit the input at least as well, NaN where an output recurs;
    ``probabilities`` (n,) that the output does not belong to the input, and ``log_ratios`` (n,) of its rank if it does
    not against if it does: both 0 where nothing is known. ``usable``: whether the ranks tell outputs apart."""

    ranks: Float64s
    probabilities: Float64s
    log_ratios: Float64s
    usable: bool


def mismatches(rows: Sequence[Demonstration], monitor: Monitor = SILENT) -> Mismatches:
    """Compare the output of each row with its input. Raises `Cancelled` between blocks."""
    counts = Counter(row.output for row in rows)
    judged = np.array([counts[row.output] < RECURRING for row in rows], np.bool_)
    ranks, probabilities, ratios = np.full(len(rows), np.nan), np.zeros(len(rows)), np.zeros(len(rows))
    if np.count_nonzero(judged) < LEAST:
        return Mismatches(ranks, probabilities, ratios, False)
    ranks[judged] = _ranks([rows[place] for place in np.flatnonzero(judged).tolist()], monitor)
    two = mixture(ranks[judged])
    if two is not None:
        probabilities[judged], ratios[judged] = two
    return Mismatches(ranks, probabilities, ratios, two is not None)


def _ranks(rows: Sequence[Demonstration], monitor: Monitor) -> Float64s:
    """The rank of each row's output among others, (n,), in (0, 1]. Ties are broken at random, with a fixed seed, so
    that ranks that mean nothing are uniform."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    draw = np.random.default_rng(0)
    inputs = [f"{row.input}\n{row.context}" for row in rows]
    outputs = [row.output for row in rows]
    words = TfidfVectorizer(analyzer=tokenise, sublinear_tf=True)
    fitted = words.fit_transform(inputs + outputs)
    given, said = fitted[: len(rows)], fitted[len(rows) :]
    own = np.asarray(given.multiply(said).sum(axis=1)).ravel()
    sample = np.sort(draw.permutation(len(rows))[:OTHERS])
    names = np.unique(outputs, return_inverse=True)[1]
    ranks = np.empty(len(rows))
    for start in range(0, len(rows), BLOCK):
        monitor.check()
        block = slice(start, start + BLOCK)
        others = (given[block] @ said[sample].T).toarray() - own[block, None]
        different = names[block, None] != names[None, sample]
        better = np.count_nonzero(different & (others > 1e-9), axis=1)
        equal = np.count_nonzero(different & (np.abs(others) <= 1e-9), axis=1)
        among = np.count_nonzero(different, axis=1)
        ranks[block] = (better + (1.0 - draw.random(len(among))) * (equal + 1)) / (among + 1)
    return ranks


def mixture(ranks: Float64s) -> tuple[Float64s, Float64s] | None:
    """The probability that each rank (n,) is one that means nothing, and the log of its density among those against
    its density among the others; None if ranks do not tell outputs apart."""
    foreign = min(1.0, 2.0 * float(np.mean(ranks > 0.5)))  # Storey's π0 at λ = 1/2
    low = float(np.mean(ranks <= LOW)) - LOW * foreign
    if low < VISIBLE or low < EXPLAINED * (1.0 - foreign):
        return None
    bins = np.minimum((ranks * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    shares = np.minimum(foreign * len(ranks) / BINS / np.maximum(counts, 1), 1.0)  # local rate: π0 f0 / f, f0 = 1
    shares = np.maximum.accumulate(np.where(counts > 0, shares, 0.0))
    density = (counts * BINS / len(ranks) - foreign) / max(1.0 - foreign, 1e-9)  # f1, from f = π0 + (1 − π0) f1
    ratios = np.maximum.accumulate(-np.log(np.maximum(density, FLOOR)))
    return np.asarray(shares[bins]), np.asarray(ratios[bins])
