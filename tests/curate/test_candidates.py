"""Candidates from evidence: what each proposes, and what is never proposed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from icl_curate.engine.curate.candidates import (
    MOST_PREFIXES,
    Candidate,
    PruningEvidence,
    gather,
    propose,
    retold,
    unsuspected_shares,
)
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

ROWS = np.arange(100, 160)
SOURCES = [f"s{i // 10}" for i in range(60)]
RELIABILITY = {"s0": 0.7, "s1": 0.2, "s2": 0.65, "s3": 0.1, "s4": 0.6}  # s5 was never tried
WORDS = [
    f"{first}{last}"
    for first in ("am", "bor", "ket", "lis", "mun", "pra", "sol")
    for last in ("ba", "do", "fi", "gra", "ho", "ju", "ka")
]


def _evidence(**given: object) -> PruningEvidence:
    known = PruningEvidence(ROWS, SOURCES, RELIABILITY, "reliability", (), np.array([131, 102, 147, 110], np.int64))
    return replace(known, **given)  # type: ignore[arg-type]


def _by_name(found: Sequence[Candidate]) -> Mapping[str, Candidate]:
    assert len({each.name for each in found}) == len(found)
    return {each.name: each for each in found}


def test_the_worst_sources_come_nested_and_unknown_ones_stay() -> None:
    found = _by_name(propose(_evidence(), 5))
    worst = [found["worst source: s3"], *(found[f"worst {n} sources"] for n in (2, 3, 4))]
    assert [each.sources for each in worst] == [("s3",), ("s3", "s1"), ("s3", "s1", "s4"), ("s3", "s1", "s4", "s2")]
    assert worst[1].rows.tolist() == [*range(110, 120), *range(130, 140)]
    assert not any("s5" in each.sources for each in found.values())


def test_the_baseline_comes_first_and_no_two_candidates_prune_the_same() -> None:
    found = propose(_evidence(voted_out=("s3", "s1"), posterior={102: 0.95, 110: 0.8, 147: 0.6, 131: 0.55}), 5)
    assert (found[0].name, found[0].rows.size) == ("keep everything", 0)
    assert len({each.key for each in found}) == len(found)
    assert "sources voted out" not in _by_name(found)  # those of the worst 2


def test_what_only_the_vote_drops_is_tried() -> None:
    found = _by_name(propose(_evidence(voted_out=("s5", "s3")), 5))
    assert found["sources voted out"].rows.tolist() == [*range(130, 140), *range(150, 160)]


def test_rows_above_each_strength_of_the_posterior() -> None:
    found = _by_name(propose(_evidence(posterior={102: 0.95, 110: 0.8, 147: 0.6, 131: 0.5, 158: 0.7}), 5))
    assert found["rows with hurts > 0.9"].rows.tolist() == [102]
    assert found["rows with hurts > 0.7"].rows.tolist() == [102, 110]
    assert found["rows with hurts > 0.5"].rows.tolist() == [102, 110, 147, 158]
    assert found["suspects or hurts > 0.5"].rows.tolist() == [102, 110, 131, 147, 158], "either is enough"
    both = found["worst 2 and suspects or hurts > 0.5"]
    assert both.rows.tolist() == [102, *range(110, 120), *range(130, 140), 147, 158]
    assert found["s3 and rows with hurts > 0.9"].sources == ("s3",)


def test_the_evidence_agrees_with_pruning_rows_that_hurt_and_not_with_pruning_others() -> None:
    known = _evidence(posterior={102: 0.95, 110: 0.75, 147: 0.25})
    assert known.agreement(Candidate("", np.array([102, 110]))) == pytest.approx(0.9 + 0.5)
    assert known.agreement(Candidate("", np.array([102, 147, 158]))) == pytest.approx(0.9 + 0.0 - 1.0), (
        "147 is suspected, so no more likely right than wrong"
    )
    assert known.agreement(Candidate("", np.empty(0, np.int64))) == 0.0
    assert _evidence().agreement(Candidate("", np.array([102, 131, 158]))) == 1.0, (
        "without a posterior, two are suspected and one is not"
    )


def test_a_relabelled_row_counts_as_pruned_and_as_one_that_is_right_or_wrong() -> None:
    known = _evidence(posterior={102: 0.95, 110: 0.75}, corrections={110: ("b", 0.8)})
    given = Candidate("", np.array([102]), outputs={110: "b"})
    right, wrong_before = 0.75 * 0.8, 0.75
    by_hand = (2 * 0.95 - 1) + (wrong_before - (1 - wrong_before)) + (right - (1 - right))
    assert known.agreement(given) == pytest.approx(by_hand)


def test_suspects_are_relabelled_where_the_right_label_is_likely_and_else_pruned() -> None:
    posterior = {102: 0.95, 110: 0.9, 131: 0.7, 147: 0.6, 150: 0.2}
    corrections = {102: ("b", 0.85), 110: ("c", 0.95), 131: ("b", 0.99), 147: ("a", 0.5)}
    known = _evidence(posterior=posterior, corrections=corrections)
    found = _by_name(propose(known, 5))
    alone = found["rows with hurts > 0.5, relabelled"]
    assert (alone.rows.tolist(), alone.outputs) == ([147], {102: "b", 110: "c", 131: "b"})
    beside = found["worst 2 and rows with hurts > 0.5, relabelled"]
    assert (beside.sources, beside.outputs) == (("s3", "s1"), {102: "b"}), "what is pruned as a source stays pruned"
    assert beside.rows.tolist() == [*range(110, 120), *range(130, 140), 147]
    before = [each.name for each in propose(replace(known, corrections={}), 5)]
    assert [name for name in found if not name.endswith("relabelled")] == before
    assert "rows with hurts > 0.5, relabelled" in [each.name for each in propose(known, 5, 4)]


def test_by_other_evidence_a_candidate_has_the_same_sources_and_the_rows_of_its_strength() -> None:
    posterior = {102: 0.95, 110: 0.9, 131: 0.7, 147: 0.6}
    known = _evidence(posterior=posterior, corrections={102: ("b", 0.85), 131: ("b", 0.99)})
    found = _by_name(propose(known, 5))
    other = _evidence(
        posterior={102: 0.3, 147: 0.92, 150: 0.8}, corrections={147: ("a", 0.9)}, suspected=np.array([102, 110])
    )
    assert retold(found["rows with hurts > 0.9"], other, 5).rows.tolist() == [147]
    assert retold(found["rows with hurts > 0.7"], other, 5).rows.tolist() == [147, 150]
    relabelled = retold(found["worst 2 and rows with hurts > 0.5, relabelled"], other, 5)
    assert relabelled.sources == ("s3", "s1") and relabelled.outputs == {147: "a"}
    assert relabelled.rows.tolist() == [*range(110, 120), *range(130, 140), 150]
    for candidate in found.values():
        assert retold(candidate, known, 5).key == candidate.key, "by the same evidence it is the same"
    either = _by_name(propose(replace(known, posterior={102: 0.95, 131: 0.2}), 5))["suspects or hurts > 0.5"]
    likely = replace(other, suspected=np.array([150, 147]))
    assert retold(either, likely, 5).rows.tolist() == [147, 150], "no suspect is less likely to hurt"
    everywhere = replace(other, posterior=dict.fromkeys(ROWS.tolist(), 0.99))
    assert not retold(found["rows with hurts > 0.9"], everywhere, 5).changes, "too few would be left"


def test_rows_may_all_be_relabelled_but_not_all_pruned() -> None:
    all_wrong = _evidence(
        sources=["only"] * 60, posterior=dict.fromkeys(ROWS.tolist(), 0.9),
        corrections=dict.fromkeys(ROWS.tolist(), ("b", 0.9)),
    )  # fmt: skip
    assert [each.name for each in propose(all_wrong, 5)] == [
        "keep everything",
        "rows with hurts > 0.5, relabelled",
    ]


def test_suspects_without_a_posterior_come_at_two_strengths() -> None:
    found = _by_name(propose(_evidence(), 5))
    assert found["half of the suspects"].rows.tolist() == [102, 131]  # the first two
    assert found["suspects"].rows.tolist() == [102, 110, 131, 147]


def test_a_pool_with_one_source_has_candidates_of_rows_only() -> None:
    one = _evidence(sources=["only"] * 60, reliability={"only": 0.4})
    assert [each.name for each in propose(one, 5)] == ["keep everything", "half of the suspects", "suspects"]


def test_a_clean_pool_of_one_source_has_the_baseline_alone() -> None:
    clean = _evidence(sources=["only"] * 60, reliability={"only": 0.4}, suspected=np.empty(0, np.int64))
    assert [each.name for each in propose(clean, 5)] == ["keep everything"]


@pytest.mark.parametrize("k", [0, 1, 5, 25, 60, 70])
def test_enough_rows_are_left_for_a_prompt(k: int) -> None:
    every = _evidence(suspected=ROWS, voted_out=tuple(set(SOURCES)))
    found = propose(every, k)
    assert found[0].name == "keep everything"
    assert all(60 - each.rows.size >= max(k, 1) for each in found[1:])


def test_of_many_sources_not_every_number_is_tried() -> None:
    sources = [f"s{i:03}" for i in range(300)]
    reliability = {name: i / 300 for i, name in enumerate(sources)}
    many = PruningEvidence(np.arange(300), sources, reliability, "reliability", (), np.empty(0, np.int64))
    sizes = [len(each.sources) for each in propose(many, 5) if each.name.startswith("worst")]
    assert len(sizes) <= MOST_PREFIXES + 2
    assert (sizes[0] == 1 and max(sizes) == 295) or max(sizes) < 299


def test_without_a_run_sources_are_ranked_by_their_suspects() -> None:
    shares = unsuspected_shares(np.arange(6), ["a", "a", "a", "a", "b", "b"], np.array([1, 4, 5]))
    assert shares == {"a": 0.75, "b": 0.0}


def test_sources_that_nothing_tells_apart_are_not_pruned_with_rows() -> None:
    alike = _evidence(reliability=dict.fromkeys(RELIABILITY, 1.0), posterior={102: 0.95, 110: 0.3})
    assert alike.bad == ()
    assert not any(each.sources and 102 in each.rows.tolist() for each in propose(alike, 5, 3))


def test_a_source_with_outputs_of_other_rows_is_the_first_one_tried(tmp_path: Path) -> None:
    """Before, it was the first source by name."""
    files = []
    for name in ("east", "north", "west"):
        inputs = [f"order number {i} of {name}: {WORDS[i]} and {WORDS[i + 7]}" for i in range(40)]
        outputs = [f"{WORDS[i]} with {WORDS[i + 7]}, {i} times" for i in range(40)]
        if name == "north":
            outputs = [*outputs[13:], *outputs[:13]]
        rows = [{"input": text, "output": output} for text, output in zip(inputs, outputs, strict=True)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        files.append(str(tmp_path / f"{name}.jsonl"))
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=tuple(files)))
    evidence = gather(workspace, Settings())
    assert evidence.bad == ("north",)
    assert [each.sources for each in propose(evidence, 4, 2)] == [(), ("north",)]


def test_where_nothing_but_the_source_is_known_of_rows_suspects_come_at_two_strengths(tmp_path: Path) -> None:
    refusal = "I'm sorry, but I cannot assist with that."
    outputs = [f"{WORDS[i * 3 % 49]} {WORDS[i * 11 % 49]}" if i % 8 else refusal for i in range(48)]
    inputs = [f"what of {WORDS[i]} and {WORDS[i * 5 % 49]}?" for i in range(48)]
    rows = [{"input": text, "output": output} for text, output in zip(inputs, outputs, strict=True)]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=(str(tmp_path / "pool.jsonl"),)))
    evidence = gather(workspace, Settings())
    found = _by_name(propose(evidence, 4))
    assert len(found["half of the suspects"].rows) == 3
    assert evidence.agreement(found["suspects"]) == 6.0


@pytest.mark.parametrize(
    ("ranked_by", "second"),
    [("reliability", "worst 2 sources"), ("share not suspected", "s3 and half of the suspects")],
)
def test_few_candidates_are_those_of_the_most_evidence(ranked_by: str, second: str) -> None:
    names = [[each.name for each in propose(_evidence(ranked_by=ranked_by), 5, most)] for most in (1, 2, 3)]
    assert names[0] == ["keep everything"]
    assert names[1] == ["keep everything", "worst 2 and suspects"]
    assert set(names[2][1:]) == {"worst 2 and suspects", second}


def test_without_suspects_the_sources_below_the_widest_gap_are_raced_first() -> None:
    none = _evidence(suspected=np.empty(0, np.int64))
    assert [each.sources for each in propose(none, 5, 2)] == [(), ("s3", "s1")]
    many = [f"m{i:02}" for i in range(30)]
    reliability = {name: 0.1 if i < 7 else 0.6 + i / 100 for i, name in enumerate(many)}
    wide = _evidence(sources=[many[i // 2] for i in range(60)], reliability=reliability, suspected=none.suspected)
    assert {each.sources for each in propose(wide, 5, 2)} == {(), tuple(many[:7])}
