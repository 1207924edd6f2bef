"""Sets of labels as one output, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from icl_curate.engine.pool.prompts import instruction_of
from icl_curate.engine.pool.records import Query, Task
from icl_curate.engine.pool.sets import MOST_LABELS, labels_of, members_of, set_text


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (["toxic", "obscene"], "toxic, obscene"),
        (["b", "a", "b"], "b, a"),
        ([], "none"),
        (["none"], "none"),
        (["food, drink", "art"], '["food, drink", "art"]'),
        ([" padded"], '[" padded"]'),
    ],
)
def test_a_set_is_written_in_the_order_of_its_row(labels: list[str], text: str) -> None:
    assert set_text(labels) == text


@given(st.lists(st.text(min_size=1, max_size=8)))
def test_what_is_written_is_read_again(labels: list[str]) -> None:
    wanted = tuple(label for label in dict.fromkeys(labels) if label.lower() != "none")
    assert members_of(set_text(labels)) == wanted


@given(st.text(max_size=30))
def test_any_text_has_members_that_make_a_set(text: str) -> None:
    assert set(members_of(set_text(members_of(text)))) == {m for m in members_of(text) if m.lower() != "none"}


def test_labels_are_the_members_and_too_many_are_not_listed() -> None:
    assert labels_of("sets", ["b, a", "none", "a, c"]) == ("a", "b", "c")
    assert labels_of("labels", ["b, a", "c"]) == ("b, a", "c")
    assert labels_of("sets", [f"l{i}" for i in range(MOST_LABELS + 1)]) == labels_of("open", ["a"]) == ()


def test_a_set_is_asked_for_with_its_labels_and_no_combination_can_be_chosen() -> None:
    task = Task("sets", ("a", "b"))
    assert instruction_of(task).splitlines() == [
        'Label each input with all of these labels that apply, separated by commas, or with "none", and nothing else:',
        "a",
        "b",
    ]
    assert task.choices(Query("q")) == ()
    assert instruction_of(Task("sets")).endswith(
        'all labels that apply, separated by commas, or with "none", and nothing else.'
    )
