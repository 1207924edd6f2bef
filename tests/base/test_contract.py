"""Results as JSON and back, on every kind of field that results have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from icl_curate.engine.base.contract import OPTIONAL, SPREAD, Reported, from_json, named, to_json


@dataclass(frozen=True)
class Inner:
    calls: int
    failures: int = 0


@dataclass(frozen=True)
class Outer:
    run: int
    usage: Inner = field(metadata=SPREAD)
    share: float
    kind: Literal["easy", "hard"]
    start: float = field(metadata=named("from"))
    pair: tuple[float, int]
    parts: tuple[Inner, ...]
    by_name: Mapping[str, Inner]
    any_of: Mapping[str, Any]
    last: float | None
    more: Inner | None = field(default=None, metadata=OPTIONAL)


TOLD: dict[str, Any] = {
    "run": 1, "calls": 3, "failures": 0, "share": 0.5, "kind": "easy", "from": 0.25, "pair": [0.5, 2],
    "parts": [{"calls": 1, "failures": 2}], "by_name": {"a": {"calls": 4, "failures": 5}}, "any_of": {"x": [1]},
    "last": None,
}  # fmt: skip
RESULT = Outer(1, Inner(3), 0.5, "easy", 0.25, (0.5, 2), (Inner(1, 2),), {"a": Inner(4, 5)}, {"x": [1]}, None)


@dataclass(frozen=True, slots=True)
class Counted(Reported):
    kind = "count"

    rows: int


def test_a_report_names_its_kind_and_is_read_with_it_or_from_before_there_were_kinds() -> None:
    assert Counted(3).as_json() == {"kind": "count", "rows": 3}
    assert Counted.from_json({"kind": "count", "rows": 3}) == Counted(3) == Counted.from_json({"rows": 3})
    for wrong in ({"kind": "export", "rows": 3}, {"kind": "count"}, [], None):
        with pytest.raises(ValueError, match="Counted"):
            Counted.from_json(wrong)


def test_a_result_comes_back_as_it_was() -> None:
    assert to_json(RESULT) == TOLD
    assert from_json(Outer, json.loads(json.dumps(TOLD))) == RESULT


def test_an_optional_field_is_a_key_only_where_it_is_something() -> None:
    more = from_json(Outer, TOLD | {"more": {"calls": 9}})
    assert more.more == Inner(9)
    assert to_json(more) == TOLD | {"more": {"calls": 9, "failures": 0}}


def test_older_and_newer_ones_are_read() -> None:
    """A key with a default may be missing; one that nobody knows is passed over."""
    older = {key: value for key, value in TOLD.items() if key != "failures"}
    assert from_json(Outer, older | {"of_the_future": 1}) == RESULT


@pytest.mark.parametrize(
    "wrong",
    [
        {"run": "1"}, {"run": True}, {"run": 1.5}, {"calls": None}, {"share": "0.5"}, {"share": None}, {"kind": "odd"},
        {"pair": [1.0]}, {"pair": 1}, {"parts": {}}, {"parts": [1]}, {"by_name": []}, {"by_name": {"a": 1}},
        {"last": "x"}, {"any_of": None}, {"more": {}},
    ],
)  # fmt: skip
def test_what_no_result_gave_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"'|lacks|object"):
        from_json(Outer, TOLD | wrong)
    for told in ([], None, {}, "x"):
        with pytest.raises(ValueError, match=r"lacks|object"):
            from_json(Outer, told)
