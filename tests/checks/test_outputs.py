"""Faults planted in outputs that are no labels: each kind is found, told and corrected, and sound pools have none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories.commands import Run
from icl_curate.engine.checks import outputs
from icl_curate.engine.checks.outputs import fault_findings, levels, output_faults
from icl_curate.engine.checks.posterior import fault_ratios, fit, trial_ratio
from icl_curate.engine.checks.rationale import _answering, statements
from icl_curate.engine.checks.results import Fault
from icl_curate.engine.checks.writing import BLOCK, NEAR, near_pairs
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.pool.records import Demonstration, Task
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.store.workspace import Workspace
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_info, threadpool_limits

OPEN = Task("open", one_line=False)
TOWNS, ITEMS = ("Leeds", "York", "Bath", "Derby", "Ripon"), ("chair", "lamp", "cable", "mug", "desk", "clock")


def _rows(pairs: Sequence[tuple[str, str]], **metadata: Any) -> list[Demonstration]:
    return [Demonstration(i, f"r{i}", given, said, "s", metadata=metadata) for i, (given, said) in enumerate(pairs)]


def _orders(count: int = 300, seed: int = 0) -> list[tuple[str, str]]:
    """Messages and the objects made of them, some with an optional field."""
    draw = np.random.default_rng(seed)
    pairs = []
    for i in range(count):
        town, item, price = str(draw.choice(TOWNS)), str(draw.choice(ITEMS)), int(draw.integers(5, 900))
        told: dict[str, Any] = {"item": item, "price": price, "to": {"town": town, "paid": bool(draw.integers(2))}}
        told |= {"note": f"call {i}"} if draw.random() < 0.4 else {}
        pairs.append((f"A {item} for {price} to {town}, please", json.dumps(told)))
    return pairs


def _sums(count: int = 300, seed: int = 0) -> list[tuple[str, str]]:
    """Questions with rationales as in GSM8K, with and without its notes."""
    draw = np.random.default_rng(seed)
    pairs = []
    for i in range(count):
        a, b, c = (int(x) for x in draw.integers(2, 60, 3))
        person, item = f"P{i}", ITEMS[i % len(ITEMS)]
        note = f"<<{a}*{b}={a * b}>>" if i % 2 else ""
        text = f"{person} pays {a} * {b} = ${note}{a * b} for each {item}.\nThen {a * b} + {c} = {a * b + c} in all.\n"
        pairs.append((f"{person} has {a} {item}s of {b} and {c}. How many?", f"{text}#### {a * b + c}"))
    return pairs


def _names(count: int = 300, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences with the towns and numbers in them as entities."""
    draw = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        town, number = str(draw.choice(TOWNS)), str(draw.integers(10, 90))
        text = f"There are {number} people in {town} today"
        spans = [{"text": t, "type": kind, "start": text.index(t), "end": text.index(t) + len(t)}
                 for t, kind in ((number, "count"), (town, "place"))]  # fmt: skip
        pairs.append((text, json.dumps(spans)))
    return pairs


def _calls(count: int = 300) -> list[tuple[str, str]]:
    told = [("weather", {"town": TOWNS[i % 5], "days": i % 7}) if i % 2 else ("buy", {"item": ITEMS[i % 6], "count": i})
            for i in range(count)]  # fmt: skip
    return [(f"do {i}", json.dumps([{"name": n, "arguments": a}])) for i, (n, a) in enumerate(told)]


def _sets(count: int = 300, seed: int = 0) -> list[tuple[str, str]]:
    draw = np.random.default_rng(seed)
    return [(f"message {i}", ", ".join(draw.choice(ITEMS, 1 + i % 3, replace=False))) for i in range(count)]


def _answers(count: int = 300, seed: int = 0) -> list[tuple[str, str]]:
    draw = np.random.default_rng(seed)
    text = "the order was sent to our shop and it will be there by next week so please ask them for more help"
    words = text.split()
    return [(f"q{i}", " ".join(draw.choice(words, int(draw.integers(12, 30)))) + ".") for i in range(count)]


SOUND = {"orders": _orders, "sums": _sums, "names": _names, "calls": _calls, "sets": _sets, "answers": _answers}


def _declared(count: int = 300, seed: int = 0) -> list[tuple[str, str]]:
    """Requests with their functions and arguments in the text, and the calls: values are mostly worded otherwise."""
    draw, pairs = np.random.default_rng(seed), []
    for _ in range(count):
        tool, one, other = (str(draw.choice(names)) for names in (("buy", "send", "find"), ITEMS, TOWNS))
        value = "three" if draw.random() < 0.7 else 3
        call = {"name": f"{tool}_{one}", "arguments": {f"to_{other}": other, f"{one}_count": value}}
        text = f"{tool} 3 for {other} with {tool}_{one}(to_{other}, {one}_count)"
        pairs.append((text, json.dumps([call])))
    return pairs


def _moved(pairs: list[tuple[str, str]], every: int = 5) -> tuple[list[tuple[str, str]], set[int]]:
    """Every fifth pair with the output of a row far from it, and which have another one now."""
    swapped = [(text, pairs[(i + 37) % len(pairs)][1] if i % every == 0 else said) for i, (text, said) in
               enumerate(pairs)]  # fmt: skip
    return swapped, {i for i, (now, then) in enumerate(zip(swapped, pairs, strict=True)) if now != then}


def _other_sums(pairs: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], set[int]]:
    wrong = [(text, said + "1" if i % 5 == 0 else said) for i, (text, said) in enumerate(pairs)]
    return wrong, set(range(0, len(pairs), 5))


@pytest.mark.parametrize(
    ("make", "spoil", "least"),
    [(_names, _moved, 0.95), (_declared, _moved, 0.95), (_sums, _other_sums, 1.0)],
    ids=["entities", "calls", "rationales"],
)
def test_verified_outputs_tell_what_is_usual_where_many_rows_are_wrong(make: Any, spoil: Any, least: float) -> None:
    """A fifth of the rows is wrong, too many for a pool to tell by itself; queries tell, and no right row is named."""
    pairs, wrong = spoil(make())
    rows, verified = _rows(pairs), _rows(make(60, seed=1))
    assert output_faults(rows, OPEN) == ()
    faults = output_faults(rows, OPEN, verified=verified)
    named = {fault.place for fault in faults if fault.sure}
    assert named <= wrong and len(named) >= least * len(wrong)
    assert output_faults(rows, OPEN, verified=verified[:10]) == (), "of few queries nothing is known"
    assert output_faults(_rows(make()), OPEN, verified=verified) == ()


def test_verified_answers_of_another_form_name_nothing() -> None:
    """Queries often have the final answer alone, or one that is worded freely."""
    short = _rows([(text, said.rpartition("#### ")[2]) for text, said in _sums(60, seed=1)])
    assert output_faults(_rows(_sums()), OPEN, verified=short) == ()
    renamed = _rows([(text, said.replace("name", "tool")) for text, said in _declared(60, seed=1)])
    assert output_faults(_rows(_declared()), OPEN, verified=renamed) == ()


def test_verified_outputs_of_one_length_show_that_many_rows_are_cut() -> None:
    """A fifth of the answers is cut to two words; of the verified ones none is that short."""
    cut = [(text, " ".join(said.split()[:2]) if i % 5 == 0 else said) for i, (text, said) in enumerate(_answers())]
    assert output_faults(_rows(cut), OPEN) == ()
    found = output_faults(_rows(cut), OPEN, verified=_rows(_answers(60, seed=1)))
    assert {fault.place for fault in found if fault.kind == "style"} == set(range(0, 300, 5))


@pytest.mark.parametrize("make", SOUND.values(), ids=SOUND.keys())
def test_sound_pools_have_next_to_no_faults(make: Callable[[], list[tuple[str, str]]]) -> None:
    assert output_faults(_rows(make()), OPEN) == ()


FAULTY = {
    "orders": [*_orders(), ("a desk", '{"item": "desk"}'), ("Ein Tisch", "kaputt")],
    "calls": [*_calls(), ("do it", '[{"name": "wether", "arguments": {"town": "Leeds", "days": 1}}]')],
    "names": [*_names(), ("There are 5 people", '[{"text": "7", "type": "count", "start": 0, "end": 1}]')],
    "sets": [*_sets(), ("message", "lamp, chiar")],
    "sums": [*_sums(), ("P1 has 4 mugs of 5 and 6. How many?", "P1 pays 4 * 5 = $25 for each mug.\n#### 31")],
}


@pytest.mark.parametrize("pairs", FAULTY.values(), ids=FAULTY.keys())
def test_one_kind_is_looked_for_alone_and_finds_the_same(
    pairs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind runs its own part, and none of the others."""
    rows, vectors = _rows(pairs), np.random.default_rng(0).normal(size=(len(pairs), 8)).astype(np.float32)
    every = output_faults(rows, OPEN, vectors)
    assert every
    parts = {"structure_faults": ("schema", "entity", "call"), "set_faults": ("member",), "style_faults": ("style",),
             "rationale_faults": ("rationale",), "neighbour_faults": ("neighbour",)}  # fmt: skip
    for own, kinds in parts.items():
        with monkeypatch.context() as patch:
            for other in parts.keys() - {own}:
                patch.setattr(outputs, other, None)
            for kind in kinds:
                alone = output_faults(rows, OPEN, vectors, wanted=[kind])
                assert alone == tuple(fault for fault in every if fault.kind == kind)


def _told(count: int, tail: str, start: int = 0) -> list[tuple[str, str]]:
    return [
        (f"dialogue {i}", f"Person {i % 7} asks the other about item {i}{tail}") for i in range(start, start + count)
    ]


def test_what_ends_in_mid_sentence_is_named_where_that_is_not_usual() -> None:
    def found(pairs: list[tuple[str, str]], right: list[tuple[str, str]]) -> dict[int, bool]:
        every = output_faults(_rows(pairs), OPEN, wanted=["style"], verified=_rows(right))
        return {one.place: one.sure for one in every if "mid-sentence" in one.evidence}

    whole, cut = _told(200, " and hears of it."), _told(40, " and", 200)
    assert found([*whole, *cut], []) == {}  # a sixth: it may be usual
    assert found([*whole, *cut], _told(60, " today.")) == dict.fromkeys(range(200, 240), True)
    assert found([*whole, *cut], [*_told(58, " today."), *_told(2, "")]) == dict.fromkeys(range(200, 240), False)
    assert found([*whole, *cut], [*_told(30, " today."), *_told(30, "")]) == {}
    assert found([*cut * 9, *whole], _told(60, " today.")) == {}  # most do: it is a convention of their own
    assert found([*whole, *cut[:1]], []) == {200: True}
    short, long = [(given, "by train") for given, _ in whole], _told(60, f"{' at length' * 9}.")
    assert found([*short, *long, ("q", f"{long[0][1][:-1]} and")], []) == {260: True}


def test_labels_and_options_have_none() -> None:
    odd = [*_orders(), ("x", "{")]
    assert output_faults(_rows(odd), OPEN)
    assert output_faults(_rows(odd), Task("labels")) == () == output_faults(_rows(odd), Task("options"))


def _changed(pair: tuple[str, str], change: Callable[[Any], object]) -> tuple[str, str]:
    value = json.loads(pair[1])
    change(value)
    return pair[0], json.dumps(value)


def _one(pairs: list[tuple[str, str]], place: int, said: tuple[str, str]) -> Fault:
    """The fault of the only row that has any, once it says something else."""
    faults = output_faults(_rows([*pairs[:place], said, *pairs[place + 1 :]]), OPEN)
    assert {fault.place for fault in faults} == {place}, faults
    return faults[0]


@pytest.mark.parametrize(
    ("change", "evidence", "mended"),
    [
        (lambda v: v.pop("price"), "field 'price' is missing; 299 of 300 have it", False),
        (lambda v: v["to"].pop("paid"), "field 'paid' of 'to' is missing; 299 of 300 have it", False),
        (lambda v: v.update(prize=1), "field 'prize' is in 1 of 300", False),
        (lambda v: v.update(prce=v.pop("price")), "field 'prce' is in 1 of 300, 'price' in 299", True),
        (lambda v: v.update(price=str(v["price"])), "field 'price' is a text; 299 of 300 are a number", True),
        (lambda v: v.update(item=[v["item"]]), "field 'item' is a list; 299 of 300 are a text", False),
        (lambda v: v["to"].update(town="Ledes"), "field 'to.town' is 'Ledes'", None),
        (lambda v: v["to"].update(town="Oslo"), "field 'to.town' is 'Oslo'; 299 others are one of 5 values", False),
    ],
)
def test_what_sets_an_object_apart_is_told_and_mended(
    change: Callable[[Any], object], evidence: str, mended: bool | None
) -> None:
    pairs = _orders()
    fault = _one(pairs, 7, _changed(pairs[7], change))
    assert fault.kind == "schema" and evidence in fault.evidence and fault.sure is ("Oslo" not in evidence)
    if mended is None:
        assert json.loads(fault.corrected)["to"]["town"] == "Leeds"
    else:
        assert bool(fault.corrected) is mended
        assert not mended or json.loads(fault.corrected) == json.loads(pairs[7][1])


@pytest.mark.parametrize("style", [str.title, lambda name: f"{name}_", str.upper])
def test_a_source_with_a_schema_of_its_own_is_told_and_mended(style: Callable[[str], str]) -> None:
    """A sixth of the rows has other names, which also lack a field at times."""
    sound = _orders()
    pairs = [
        _changed(pair, lambda v: [v.update({style(key): v.pop(key)}) for key in [*v]]) if i % 6 == 0 else pair
        for i, pair in enumerate(sound)
    ]
    pairs[12] = _changed(pairs[12], lambda v: v.pop(style("item")))
    faults = {fault.place: fault for fault in output_faults(_rows(pairs), OPEN) if fault.place != 12}
    assert faults.keys() == {*range(0, 300, 6)} - {12}
    assert all(fault.kind == "schema" and fault.sure for fault in faults.values())
    assert all(json.loads(fault.corrected) == json.loads(sound[place][1]) for place, fault in faults.items())
    assert f"field '{style('item')}' is in 49 of 300, 'item' in 250 (and " in faults[0].evidence
    told = [fault.evidence for fault in output_faults(_rows(pairs), OPEN) if fault.place == 12]
    assert any("field 'item' is missing; 299 of 300 have it" in each for each in told), told
    assert not any(fault.corrected for fault in output_faults(_rows(pairs), OPEN) if fault.place == 12)


def test_names_that_are_too_rare_to_be_known_leave_a_schema_uncorrected() -> None:
    """Objects with many optional fields: a correction that leaves some as they were would be none."""
    sound = [(given, f'{{"slot_{i % 60}": {i}, {said[1:]}') for i, (given, said) in enumerate(_orders())]
    pairs = [
        _changed(pair, lambda v: [v.update({name.title(): v.pop(name)}) for name in [*v]]) if i % 6 == 0 else pair
        for i, pair in enumerate(sound)
    ]
    faults = {fault.place: fault for fault in output_faults(_rows(pairs), OPEN)}
    assert faults.keys() == {*range(0, 300, 6)}
    assert all("'item' in 250" in fault.evidence and not fault.corrected for fault in faults.values())


def test_two_spellings_that_stand_together_or_are_as_common_are_two_fields() -> None:
    """Objects with a and A, and two halves of a pool with a name each."""
    both = [_changed(pair, lambda v: v.update(Item=1)) if i % 6 == 0 else pair for i, pair in enumerate(_orders())]
    assert output_faults(_rows(both), OPEN) == ()
    halves = [
        _changed(pair, lambda v: v.update(Item=v.pop("item"))) if i % 2 else pair for i, pair in enumerate(_orders())
    ]
    assert output_faults(_rows(halves), OPEN) == ()


def test_an_output_that_is_no_json_is_told_and_its_json_taken_out() -> None:
    pairs = _orders()
    given, said = pairs[3]
    fenced = _one(pairs, 3, (given, f"Here it is:\n```json\n{said}\n```"))
    assert "is no JSON; 299 of 300 outputs are" in fenced.evidence and json.loads(fenced.corrected) == json.loads(said)
    cut = _one(pairs, 3, (given, said[:-9]))
    assert cut.sure and not cut.corrected
    inner = _one(pairs, 3, (given, said[: said.index('"to"')] + '"to": {"town": "York"}, "x'))
    assert not inner.corrected, "an object within it is not what was meant"


def test_optional_fields_and_keys_that_are_data_are_no_faults() -> None:
    rare = [_changed(pair, lambda v: v.update(gift=True)) if i % 50 == 0 else pair for i, pair in enumerate(_orders())]
    assert output_faults(_rows(rare), OPEN) == ()
    names = [(f"q{i}", json.dumps({"scores": {f"name{i}": 1, f"other{i}": 2}})) for i in range(100)]
    assert output_faults(_rows(names), OPEN) == ()
    assert output_faults(_rows([*_orders(20), ("x", "{}")]), OPEN) == (), "of few rows nothing is known"


def test_entities_are_held_against_the_input_and_each_other() -> None:
    pairs = _names()
    text, said = pairs[5]
    spans = json.loads(said)
    moved = _one(pairs, 5, _changed(pairs[5], lambda v: v[1].update(start=spans[1]["start"] + 2)))
    assert moved.kind == "entity" and "the span" in moved.evidence and json.loads(moved.corrected) == spans
    case = _one(pairs, 5, _changed(pairs[5], lambda v: v[1].update(text=v[1]["text"].upper())))
    assert json.loads(case.corrected) == spans and f"which has '{spans[1]['text']}'" in case.evidence
    pairs[6] = _changed(pairs[6], lambda v: v[1].update(type="count"))
    (typed,) = (fault for fault in output_faults(_rows(pairs), OPEN) if fault.kind == "entity")
    assert typed.place == 6 and "others of this text place" in typed.evidence
    assert json.loads(typed.corrected) == json.loads(_names()[6][1])
    pairs[6] = _names()[6]
    invented = _one(pairs, 5, (text, json.dumps([{**spans[0], "text": "Paris"}])))
    assert "'Paris' is not in the input" in invented.evidence and not invented.corrected


def test_ends_that_include_the_last_character_are_a_convention_too() -> None:
    last = [_changed(pair, lambda v: [one.update(end=one["end"] - 1) for one in v]) for pair in _names()]
    assert output_faults(_rows(last), OPEN) == ()
    mended = _one(last, 4, _changed(last[4], lambda v: v[0].update(start=0, end=3))).corrected
    assert json.loads(mended) == json.loads(last[4][1])


def test_calls_are_held_against_other_calls_and_the_tools_of_the_row() -> None:
    pairs = _calls()
    lacking = _one(pairs, 8, _changed(pairs[8], lambda v: v[0]["arguments"].pop("count")))
    assert lacking.kind == "call" and "field 'count' of 'buy()' is missing; 149 of 150 have it" in lacking.evidence
    misspelt = _one(pairs, 9, _changed(pairs[9], lambda v: v[0].update(name="wether")))
    assert json.loads(misspelt.corrected) == json.loads(pairs[9][1])
    declared = [{"type": "function", "function": {
        "name": name, "parameters": {"properties": {own: {} for own in names}, "required": names[:1]}}}
        for name, names in (("weather", ["town", "days"]), ("buy", ["item", "count"]))]  # fmt: skip
    faulty = [*pairs[:38], ("x", json.dumps([{"name": "buy", "arguments": {"count": 1, "colour": "red"}}])),
              ("y", json.dumps([{"name": "sell", "arguments": {}}]))]  # fmt: skip
    told = {f.evidence for f in output_faults(_rows(faulty, tools=json.dumps(declared)), OPEN) if f.place >= 38}
    assert {"calls 'buy' without 'item', which it requires", "calls 'buy' with 'colour', which it does not know",
            "calls 'sell', which is not among its 2 tools"} <= told  # fmt: skip


@pytest.mark.parametrize("tools", ["[", "7", [7], [{"name": 7}], [{"name": "buy", "parameters": {"required": 7}}], {}])
def test_tools_that_are_none_declare_nothing(tools: Any) -> None:
    faults = output_faults(_rows(_calls(), tools=tools), OPEN)
    assert not any("required" in fault.evidence for fault in faults)


def test_a_member_of_hardly_another_set_is_a_misspelling_or_a_doubt() -> None:
    pairs = [*_sets(), ("x", "lamp, chiar"), ("y", "mug, sofa")]
    typo, other = output_faults(_rows(pairs), OPEN)
    assert (typo.place, typo.kind, typo.sure, typo.corrected) == (300, "member", True, "lamp, chair")
    assert (other.place, other.sure, other.corrected) == (301, False, "") and "'sofa'" in other.evidence


@pytest.mark.parametrize("written", ["airport, {}", "- {}\n- airport", '["airport", "{}"]'])
def test_of_a_set_only_the_misspelt_member_is_corrected(written: str) -> None:
    usual = ["airport, food", "ports, food", "airport, ports", "food, ports"] * 20
    faults = output_faults(_rows([("x", output) for output in (*usual, written.format("port"))]), OPEN)
    assert [fault.corrected for fault in faults if fault.kind == "member"] == [written.format("ports")]


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("He pays 3 * 4 = 12 coins", 12, True),
        ("so 20 - (3 + 4) * 2 = $6.", 6, True),
        ("That is 10 / 3 = 3.33 each", Fraction(10, 3), True),
        ("That is 10 / 3 = 4 each", Fraction(10, 3), True),
        ("That is 10 / 3 = 3.5 each", Fraction(10, 3), False),
        ("1,200 + 50 = 1,250", 1250, True),
        ("25% * 80 = 20", 20, True),
        ("100 - 25% * 80 = 80", 80, True),
        ("2,000,000 * 3 = 6 million", 6_000_000, True),
        ("5 + 6 = <<5+6=11>>11", 11, True),
        ("12 x 3 = 35", 36, False),
        ("5 × 6 – 1 = 28", 29, False),
    ],
)
def test_arithmetic_is_exact_and_may_be_rounded(text: str, value: Fraction, holds: bool) -> None:
    stated = statements(text)
    assert stated and {(one.value, one.holds) for one in stated} == {(value, holds)}


@pytest.mark.parametrize(
    "text",
    ["half of 10 + 4 = 7", "2x - 5 = 11", "x = 3", "at 10:00 = 5", "3 + 4 = 7 * 2", "6 / 1/2 = 12", "7 apples + 2 = 9",
     "(3 + 4 = 8", "5 - = 3", "3 / 0 = 1", "a + 3 = 9", "50 + 10% = 55",
     "80 – 25 % = 60"],
)  # fmt: skip
def test_what_may_mean_something_else_is_not_judged(text: str) -> None:
    assert all(one.holds for one in statements(text))


def test_a_long_run_of_signs_is_read_in_time_that_grows_with_it() -> None:
    assert statements("1 + " * 50_000 + "= 3") == statements("( " * 50_000) == []


def test_a_wrong_result_is_computed_anew_where_the_rest_says_which() -> None:
    pairs = _sums()
    given, said = pairs[11]
    first, last = (one for one in statements(said) if not said.startswith("<<", one.start - len(one.left) - 3))
    wrong = said.replace(f"={first.right}>>{first.right} for", "=7777>>7777 for")
    assert wrong != said
    fault = _one(pairs, 11, (given, wrong))
    assert fault.kind == "rationale" and "= 7777, which is" in fault.evidence
    assert fault.corrected == said, "the right one is used in the next step"
    answer = _one(pairs, 11, (given, said.replace(f"#### {last.right}", "#### 3")))
    assert "but answers 3" in answer.evidence and answer.corrected == said
    carried = said.replace(f"= {last.right} in", "= 9999 in").replace(f"#### {last.right}", "#### 9999")
    assert _one(pairs, 11, (given, carried)).corrected == said
    unclear = said.replace(f"={first.right}>>{first.right} for", "=7777>>7777 for").replace(
        f"Then {first.right}", "Then 7777"
    )
    assert not _one(pairs, 11, (given, unclear)).corrected


def test_a_number_that_is_not_written_as_it_is_read_is_not_corrected() -> None:
    assert _answering("8 - 13 = -5\n#### -6", "-5")[0] == "8 - 13 = -5\n#### -5"
    assert _answering("8 - 13 = -5\n#### –6", "-5") == ("", 0.0)


@pytest.mark.parametrize(
    ("said", "evidence", "sure"),
    [
        ("вот ответ на вопрос, который был задан сегодня", "is written in Cyrillic, 300 of 301 outputs in Latin", True),
        ("Zuerst addieren wir beide Zahlen, danach teilen wir alles durch vier und erhalten schließlich das Ergebnis",
         "is worded unlike the others", True),
        ("no", "has 2 characters, the median is", False),
        ("```\nthe order was sent to our shop and it will be there by next week\n```", "has a code fence", True),
        ("<p>the order was sent to our shop and it will be there by next week.</p>", "has HTML tags", False),
        ("Answer: the order was sent to our shop and it will be there by next week.", "has a lead-in", True),
    ],
)  # fmt: skip
def test_writing_unlike_the_others_is_told(said: str, evidence: str, sure: bool) -> None:
    faults = output_faults(_rows([*_answers(), ("x", said)]), OPEN)
    assert {fault.place for fault in faults} == {300} and {fault.kind for fault in faults} == {"style"}
    assert any(evidence in fault.evidence and fault.sure is sure for fault in faults), faults
    if "Answer" in said:
        assert said.removeprefix("Answer: ") in {fault.corrected for fault in faults}


@pytest.mark.parametrize(
    "said",
    ["[" * 90_000, '{"a":' * 900 + "1" + "}" * 900,
     '{"price": ' + "9" * 5_000 + "}", "1 + 1 = " + "9" * 9_000,
     "",
     '[{"text": "Oslo", "type": "place", "start": "x", "end": {}}]',
     '[{"name": {}, "arguments": "{"}]',
     '{"to": [[[]]]}'],
)  # fmt: skip
def test_no_stranger_s_output_stops_the_check(said: str) -> None:
    for make in SOUND.values():
        assert {fault.place for fault in output_faults(_rows([*make(), ("Oslo", said)]), OPEN)} <= {300}


def test_near_pairs_are_those_of_all_cosines() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(4 * BLOCK, 64))
    x[2 * BLOCK : 3 * BLOCK] = x[:BLOCK] + 0.15 * draw.normal(size=(BLOCK, 64))
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    near = {(int(i), int(j)) for i, j in np.argwhere(np.triu(x @ x.T >= NEAR, 1))}
    assert len(near) > BLOCK // 2
    got = set(near_pairs(x))
    assert got <= near and len(got) >= 0.95 * len(near)
    assert set(near_pairs(x[:BLOCK])) == {(i, j) for i, j in near if j < BLOCK}


def test_who_contradicts_rows_that_ask_the_same_is_told() -> None:
    draw = np.random.default_rng(0)
    kinds = ("how many {} are left", "say how many {} are left", "how many {} are there left")
    pairs, vectors = [], []
    for i in range(40):
        centre = draw.normal(size=32)
        for j, kind in enumerate(kinds):
            pairs.append(
                (
                    kind.format(f"of item {'abcdefghij'[i % 10]}{'klmn'[i // 10]}"),
                    "wrong" if (i, j) in ((3, 1), (9, 0)) else f"{i} of them",
                )
            )
            vectors.append(centre + 0.02 * draw.normal(size=32))
    x = np.array(vectors, np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    faults = [fault for fault in output_faults(_rows(pairs), OPEN, x) if fault.kind == "neighbour"]
    assert {fault.place for fault in faults} == {10, 27} and all(fault.sure for fault in faults)
    assert "asks nearly the same and says 3 of them; of 2 such rows 2 say otherwise" in faults[0].evidence
    random = [(given, f"{draw.integers(10**6)} things") for given, _ in pairs]
    assert not [f for f in output_faults(_rows(random), OPEN, x) if f.kind == "neighbour"], (
        "none agree: it means nothing"
    )


class _Watched(np.ndarray[Any, Any]):
    """Notes on how many threads it is multiplied."""

    threads: list[int] = []  # noqa: RUF012

    def __matmul__(self, other: Any) -> Any:
        self.threads.append(max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"))
        return np.asarray(self) @ np.asarray(other)


def test_near_pairs_are_multiplied_on_one_thread() -> None:
    """Products this small take longer on two as soon as another process is busy."""
    with threadpool_limits(2, user_api="blas"):
        near_pairs(np.eye(2 * BLOCK, 8, dtype=np.float32).view(_Watched))
        assert _Watched.threads and set(_Watched.threads) == {1}
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {2}


def test_likely_to_hurt_ranks_planted_faults_first_and_names_hardly_a_sound_row() -> None:
    """1 in 25 rows faulty, over ten draws: AUROC of the posterior, and the rows at .5 and more."""
    named: list[bool] = []
    for seed in range(10):
        draw, pairs = np.random.default_rng(seed), _orders(seed=seed)
        bad = draw.random(len(pairs)) < 0.04
        changes = [lambda v: v.pop("price"), lambda v: v.update(price=f"{v['price']} EUR"), lambda v: v.pop("to")]
        pairs = [_changed(pair, changes[i % 3]) if bad[i] else pair for i, pair in enumerate(pairs)]
        kinds = fault_ratios(levels(output_faults(_rows(pairs), OPEN), len(pairs)))
        fitted = fit(np.zeros(len(pairs), np.int64), kinds)
        assert roc_auc_score(bad, fitted.bad) > 0.99
        named += bad[fitted.bad >= 0.5].tolist()
    assert len(named) >= 80 and np.mean(named) > 0.97


def test_a_doubt_of_many_rows_says_nothing_and_all_rows_are_never_bad() -> None:
    doubts = (np.arange(1_000) % 20 == 0).astype(np.int64)
    fitted = fit(np.zeros(1_000, np.int64), fault_ratios({"style": doubts, "schema": np.zeros(1_000, np.int64)}))
    assert fitted.bad.max() < 0.5
    kinds = {kind: 2 * np.roll(doubts, i) for i, kind in enumerate("abc")}
    faults = fit(np.zeros(1_000, np.int64), fault_ratios(kinds))
    assert (faults.bad > 0.5).sum() == 150 and faults.bad.min() < 0.2


@pytest.mark.parametrize("count", [1, 2, 4])
def test_checks_that_find_some_bad_rows_leave_the_others_to_the_trials(count: int) -> None:
    """Three in ten bad rows have a fault of one of the kinds: the posterior is nearer to the truth with the checks than
    without them, however many there are."""
    loss = {True: 0.0, False: 0.0}
    for seed in range(2):
        draw, rows = np.random.default_rng(seed), 2_000
        bad, place = draw.random(rows) < 0.1, draw.random(rows)
        kinds = {}
        for k in range(count):
            fault = bad & (0.3 * k / count <= place) & (place < 0.3 * (k + 1) / count)
            kinds[str(k)] = np.where(fault, draw.choice([1, 2], rows, p=[1 / 3, 2 / 3]), draw.random(rows) < 0.005)
        asked = np.repeat(np.flatnonzero(draw.random(rows) < 0.6), 8)
        odds = np.where(bad, -0.6, 1.2) + draw.normal(0, 0.6, rows)
        hits = draw.random(len(asked)) < (1 / (1 + np.exp(-odds)))[asked]
        for checked in (True, False):
            evidence = {"trials": trial_ratio(rows, asked, hits), **(fault_ratios(kinds) if checked else {})}
            found = np.clip(fit(np.zeros(rows, np.int64), evidence).bad, 1e-6, 1 - 1e-6)
            loss[checked] -= float(np.log(np.where(bad, found, 1 - found)).mean())
    assert loss[True] < 0.8 * loss[False]


def test_a_doubt_is_reviewed_and_a_fault_pruned_or_corrected() -> None:
    rows = _rows([("a", "x")] * 3)
    faults = [Fault(0, "style", False, "d"), Fault(1, "schema", True, "p"), Fault(2, "schema", True, "c", "y", 0.9)]
    told = list(fault_findings(rows, faults))
    assert [one.suggestion for one in told] == ["review", "prune", "relabel: y"]
    assert [one.suggested for one in told] == ["", "", "y"] and told[2].numbers["suggested"] == 0.9
    assert told[0].severity < 0.5 < told[1].severity


def test_check_suspects_and_relabel_know_them(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = _orders(120)
    pairs[4] = _changed(pairs[4], lambda v: v.pop("price"))
    pairs[9] = _changed(pairs[9], lambda v: v.update(price=str(v["price"])))
    lines = [json.dumps({"id": f"r{i}", "input": given, "output": said}) for i, (given, said) in enumerate(pairs)]
    (tmp_path / "pool.jsonl").write_text("\n".join(lines), encoding="utf-8")
    place = ("-w", tmp_path / "w", "--json")
    index_pool(Workspace.create(tmp_path / "w"), IndexPlan(paths=(str(tmp_path / "pool.jsonl"),)))
    monkeypatch.setattr(outputs, "neighbour_faults", None)  # is not needed, nor are vectors
    monkeypatch.setattr(PoolView, "vectors", None)
    told = run("check", "--kind", "schema", *place).json
    monkeypatch.undo()
    assert {row["id"]: row["suggestion"][:7] for row in told["rows"]} == {"r4": "prune", "r9": "relabel"}
    rows = {row["id"]: row for row in run("suspects", "-n", 120, *place).json["demonstrations"]}
    assert {name for name, row in rows.items() if row["posterior"] >= 0.5} == {"r4", "r9"}
    assert json.loads(rows["r9"]["suggested"]) == json.loads(_orders(120)[9][1]) and rows["r9"]["chance"] == 0.9
    assert "fields, types and values" in run("suspects", "show", "r4", "-w", tmp_path / "w").out
    assert [*run("check", "relabel", "--kind", "schema", *place).json["relabelled"]] == ["r9"]
    assert [row["id"] for row in run("check", "--kind", "schema", *place).json["rows"]] == ["r4"]
    assert run("check", "prune", "schema", *place).json["pruned"] == ["r4"]
