"""Uncertainties and scores against hand computation."""

from __future__ import annotations

import math
from functools import partial

import pytest
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.llm.types import Answer
from icl_curate.engine.papers.calibrate.scores import (
    answer_score,
    document_scores,
    entropy,
    estimator_named,
    geometric,
    product,
    self_consistency,
    shown,
)
from icl_curate.engine.pool.answers import meaning
from icl_curate.engine.pool.records import Options

HALF, QUARTER = math.log(0.5), math.log(0.25)


def said(text: str, *logprobs: float, entropies: tuple[float, ...] = ()) -> Answer:
    return Answer(text, tokens=("t",) * len(logprobs), logprobs=logprobs, entropies=entropies)


def scored(*options: tuple[float, ...]) -> Answer:
    return Answer("first", option_logprobs=options)


def test_product_is_one_minus_the_product_of_probabilities() -> None:
    assert product(said("Rome, Italy", HALF, HALF, QUARTER), (), meaning) == pytest.approx(1 - 0.5 * 0.5 * 0.25)


def test_geometric_does_not_grow_with_length() -> None:
    assert geometric(said("a", HALF), (), meaning) == pytest.approx(0.5)
    assert geometric(said("a a a a", HALF, HALF, HALF, HALF), (), meaning) == pytest.approx(0.5)
    assert geometric(said("a a a", HALF, HALF, QUARTER), (), meaning) == pytest.approx(1 - (1 / 16) ** (1 / 3))


def test_scored_options_are_a_distribution() -> None:
    answer = scored((HALF,), (QUARTER, QUARTER))  # 8/9 and 1/9 once normalised
    assert product(answer, (), meaning) == pytest.approx(1 / 9)
    assert geometric(answer, (), meaning) == pytest.approx(1 / 3)  # 0.5 and 0.25 a token
    plain = -(8 / 9 * math.log(8 / 9) + 1 / 9 * math.log(1 / 9))
    assert entropy(answer, (), meaning) == pytest.approx(1 - math.exp(-plain))


def test_an_option_without_tokens_is_certain() -> None:
    assert geometric(scored((HALF,), ()), (), meaning) == pytest.approx(1 / 3)


def test_entropy_is_the_mean_over_tokens() -> None:
    assert entropy(said("a b", HALF, HALF, entropies=(1.0, 3.0)), (), meaning) == pytest.approx(1 - math.exp(-2))
    assert entropy(said("a b", 0.0, 0.0, entropies=(0.0, 0.0)), (), meaning) == 0.0


def test_self_consistency_is_the_share_that_disagrees() -> None:
    samples = [said("The Rome."), said("rome"), said("Oslo"), said("Rome, Italy")]
    assert self_consistency(said("Rome"), samples, meaning) == pytest.approx(0.5)
    key = partial(meaning, options=Options(("red", "green")))
    assert self_consistency(said("(A)"), [said("red"), said("the answer is A"), said("B")], key) == pytest.approx(1 / 3)


def test_an_answer_that_says_nothing_is_fully_uncertain_and_one_that_brings_nothing_is_not_scored() -> None:
    for estimate in (product, geometric, entropy, self_consistency):
        assert estimate(said("  "), [said("x")], meaning) == 1.0
        assert estimate(said("Rome"), (), meaning) is None


@pytest.mark.parametrize(
    ("uncertainty", "mean", "score"),
    [
        (0.0, 0.4, 0.0),
        (0.4, 0.4, 50.0),
        (1.0, 0.4, 100.0),
        (0.2, 0.4, 25.0),  # half way down to 0
        (0.7, 0.4, 75.0),  # half way up to 1
        (0.3, 0.5, 30.0),  # at a mean of one half the score is the uncertainty in per cent
        (0.0, 0.0, 50.0),
        (0.5, 0.0, 75.0),
        (1.0, 1.0, 50.0),
        (0.25, 1.0, 12.5),
    ],
)
def test_an_answers_score_is_50_at_the_mean(uncertainty: float, mean: float, score: float) -> None:
    assert answer_score(uncertainty, mean) == pytest.approx(score)


def test_document_scores_are_min_max_within_the_query() -> None:
    assert document_scores([0.8, 0.1, 0.45]) == pytest.approx((100.0, 0.0, 50.0))
    assert document_scores([0.3, 0.3]) == (50.0, 50.0)
    assert document_scores([0.3]) == (50.0,)
    assert document_scores([None, 0.2, 0.6]) == (None, 0.0, 100.0)
    assert document_scores([None, None]) == (None, None)
    assert document_scores([]) == ()
    assert (shown(57.14), shown(None)) == (57, None)


def test_an_unknown_estimator_gets_a_near_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'entropy'"):
        estimator_named("entropie")
