"""What is not covered: the exact chance of so many queries, against simulation; groups by words."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from icl_curate.engine.watch.groups import exceedance_p, farthest, grouped_by_words


def test_the_border_is_that_of_the_farthest_hundredth() -> None:
    similarities = np.random.default_rng(0).permutation(np.arange(1, 1000) / 1000)
    below, rank = farthest(similarities)
    assert (below, rank) == (0.010, 10)
    assert (similarities < below).sum() == rank - 1
    assert farthest(np.array([0.4, 0.9])) == (0.4, 1)


@pytest.mark.parametrize(("asked", "rank", "reference"), [(50, 1, 100), (200, 3, 60), (30, 2, 20)])
def test_the_chance_of_so_many_far_queries_is_that_of_a_simulation(asked: int, rank: int, reference: int) -> None:
    rng = np.random.default_rng(1)
    known, new = rng.random((20_000, reference)), rng.random((20_000, asked))
    border = np.partition(known, rank - 1, axis=1)[:, rank - 1 : rank]
    beyond = (new < border).sum(axis=1)
    for least in (0, 1, 3, 8):
        simulated = (beyond >= least).mean()
        assert exceedance_p(least, asked, rank, reference) == pytest.approx(simulated, abs=0.015), least
    assert exceedance_p(asked, asked, rank, reference) < 0.05


def test_groups_are_named_by_words_that_are_more_than_usual() -> None:
    texts = ["refund card pin", "card pin", "card pin new", "crypto card", "crypto wallet card", "card"]
    words = [frozenset(text.split()) for text in texts]
    usual = Counter({"card": 95, "refund": 10})
    found = grouped_by_words(words, usual, 100, most=5)
    assert found == [("pin", [0, 1, 2]), ("crypto", [3, 4])]
    assert grouped_by_words(words, usual, 100, most=1) == [("pin", [0, 1, 2])]
    assert grouped_by_words([], usual, 100, most=5) == []
    assert grouped_by_words([frozenset()], Counter(), 0, most=5) == []
