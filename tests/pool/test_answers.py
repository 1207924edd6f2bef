"""Answer metrics against published examples and their own definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.pool.answers import (
    bleu,
    exact_match,
    is_correct,
    normalise,
    rouge_l,
    token_f1,
)
from icl_curate.engine.pool.choices import choice_of
from icl_curate.engine.pool.records import Options

OPTIONS = Options(("bank", "library", "department store", "mall", "new york"))


@pytest.mark.parametrize(
    ("answer", "option"),
    [
        ("(B)", 1),
        ("B.", 1),
        ("b) library", 1),
        ("the answer is B", 1),
        ("The answer is: (C) department store", 2),
        ("The correct option is D.", 3),
        ("It is a mall.", 3),
        ("New York!", 4),
        ("bank\nbecause money is kept there", 0),
        ("both bank and mall", None),
        ("(B) mall", 3),  # letter and text disagree: the text is what was said
        ("F", None),
        ("", None),
    ],
)
def test_choice_of_reads_letters_and_texts(answer: str, option: int | None) -> None:
    assert choice_of(answer, OPTIONS) == option


def test_a_longer_option_wins_over_one_inside_it() -> None:
    assert choice_of("I mean New York City.", ["New York", "New York City"]) == 1


def test_label_names_match_with_or_without_underscores() -> None:
    assert choice_of("card arrival", ["card_arrival", "card_linking"]) == 0
    assert is_correct("card_arrival", ["card_arrival"], ["card_arrival", "card_linking"])


def test_the_word_a_is_an_option_before_it_is_a_letter() -> None:
    assert choice_of("a", ["the", "a"]) == 1


@given(
    st.lists(
        st.text("bcdefghijklm ", min_size=2, max_size=8).map(str.strip).filter(bool),
        min_size=1,
        max_size=6,
        unique=True,
    ),
    st.data(),
)
def test_an_option_written_out_is_always_recognised(options: list[str], data: st.DataObject) -> None:
    options = [option for i, option in enumerate(options) if normalise(option) not in map(normalise, options[:i])]
    wanted = data.draw(st.integers(0, len(options) - 1))
    assert choice_of(options[wanted], options) == wanted


def test_normalisation_is_squads() -> None:
    assert normalise("  The Eiffel-Tower, in   Paris! ") == "eiffeltower in paris"
    assert normalise("An apple a day") == "apple day"


def test_exact_match_takes_any_accepted_answer() -> None:
    assert exact_match("The Beatles.", ["Rolling Stones", "beatles"]) == 1.0
    assert exact_match("Beatles band", ["beatles"]) == 0.0


def test_f1_on_known_pairs() -> None:
    # the worked example of the SQuAD paper's metric: 2 of 3 given tokens, 2 of 2 wanted
    assert token_f1("the big red dog", ["red dog"]) == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))
    assert token_f1("cat", ["dog"]) == 0.0
    assert token_f1("", [""]) == 1.0
    assert token_f1("x", []) == 0.0


@given(st.lists(st.sampled_from("uvwxyz"), max_size=7), st.lists(st.sampled_from("uvwxyz"), max_size=7))
def test_rouge_l_is_the_longest_common_subsequence(given_: list[str], wanted: list[str]) -> None:
    def longest(x: list[str], y: list[str]) -> int:
        if not x or not y:
            return 0
        if x[0] == y[0]:
            return 1 + longest(x[1:], y[1:])
        return max(longest(x[1:], y), longest(x, y[1:]))

    if not given_ or not wanted:
        expected = float(given_ == wanted)
    else:
        common = longest(given_, wanted)
        recall, precision = common / len(wanted), common / len(given_)
        expected = 2 * recall * precision / (recall + precision) if common else 0.0
    assert rouge_l(" ".join(given_), [" ".join(wanted)]) == pytest.approx(expected)


def test_bleu_by_hand() -> None:
    # two of three words; no pair, counted as 1/2 of 2; no triple, as 1/4 of 1
    assert bleu("police killed gunman", ["police kill gunman"]) == pytest.approx((2 / 3 * 1 / 4 * 1 / 4) ** (1 / 3))
    assert bleu("one two three four five", ["one two three four five"]) == 1.0
    assert bleu("one two", ["one two three four"]) == pytest.approx(math.exp(-1))  # 1 − 4 / 2
    assert bleu("one two", ["nothing", "one two three"]) == pytest.approx(math.exp(-0.5))  # the best reference
    assert (bleu("alpha", ["beta"]), bleu("", ["beta"]), bleu("", [""])) == (0.0, 0.0, 1.0)
