"""The sample data: made by its script, and as true as its truth files say."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DATA = Path(__file__).resolve().parents[1] / "sample_data"
SCRIPT = DATA.parent / "benchmarks" / "sample_data.py"
SUPPORT, FACTS = DATA / "support", DATA / "facts"


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sample_data_make", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pool() -> dict[str, list[dict[str, Any]]]:
    return {path.stem: rows(path) for path in sorted((SUPPORT / "pool").glob("*.jsonl"))}


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    return json.loads((SUPPORT / "truth.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def true_rows() -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in rows(SUPPORT / "truth_rows.jsonl")}


def grams(text: str) -> frozenset[str]:
    """Character 5-grams of the raw text; written apart from the script's own, which folds case and white space."""
    return frozenset(text[i : i + 5] for i in range(max(1, len(text) - 4)))


def likeness(texts: list[str], others: list[str]) -> list[float]:
    """For each text the largest Jaccard similarity of 5-grams to any of ``others``, through an inverted index.

    A list compared with itself leaves each text's own place out.
    """
    sets = [grams(other) for other in others]
    holders: dict[str, list[int]] = defaultdict(list)
    for j, found in enumerate(sets):
        for gram in found:
            holders[gram].append(j)
    best = []
    for i, text in enumerate(texts):
        mine = grams(text)
        common = Counter(j for gram in mine for j in holders.get(gram, ()) if texts is not others or i != j)
        best.append(max((n / (len(mine) + len(sets[j]) - n) for j, n in common.items()), default=0.0))
    return best


def test_the_script_rewrites_the_committed_files_byte_for_byte(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(SCRIPT), "--out", str(tmp_path)], check=True)
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    kept = {
        path.relative_to(DATA)
        for path in DATA.rglob("*")
        if path.is_file() and path.suffix in {".jsonl", ".json", ".md"}
    }
    assert made == kept
    assert [str(path) for path in sorted(made) if (tmp_path / path).read_bytes() != (DATA / path).read_bytes()] == []


def test_another_seed_gives_other_rows_and_the_same_noise(script: ModuleType, truth: dict[str, Any]) -> None:
    files, told = script.support(script.SEED + 1, script.Apart())
    committed = {row["input"] for row in rows(SUPPORT / "test.jsonl")}
    assert len(committed & {row["input"] for row in files["test"]}) < len(committed) / 10
    table = script.truth_table(told)
    assert {name: row["wrong_share"] for name, row in table.items()} == {
        name: row["wrong_share"] for name, row in truth["sources"].items()
    }


def test_pool_has_eight_sources_of_the_promised_kinds(pool: dict[str, Any], truth: dict[str, Any]) -> None:
    assert set(pool) == set(truth["sources"])
    kinds = Counter((row["kind"], row["noise_rate"]) for row in truth["sources"].values())
    assert kinds == Counter(
        [
            ("clean", 0.0),
            ("label-noise", 0.2),
            ("label-noise", 0.4),
            ("label-noise", 0.6),
            ("confuser", None),
            ("outdated-scheme", None),
            ("off-topic", None),
            ("near-duplicates", 0.0),
        ]
    )
    assert {name: len(found) for name, found in pool.items()} == {
        name: row["rows"] for name, row in truth["sources"].items()
    }
    assert sum(map(len, pool.values())) == 1200


def test_ids_are_unique_over_all_files(pool: dict[str, Any]) -> None:
    files = [SUPPORT / "validation.jsonl", SUPPORT / "test.jsonl", *sorted(FACTS.rglob("*.jsonl"))]
    ids = [row["id"] for found in pool.values() for row in found] + [row["id"] for file in files for row in rows(file)]
    assert len(ids) == len(set(ids))


def test_realised_noise_is_what_truth_and_readme_say(
    pool: dict[str, Any], truth: dict[str, Any], true_rows: dict[str, Any]
) -> None:
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    assert set(true_rows) == {row["id"] for found in pool.values() for row in found}
    for name, found in pool.items():
        said = truth["sources"][name]
        wrong = sum(row["output"] != true_rows[row["id"]]["true"] for row in found)
        assert wrong == said["wrong_labels"] == sum(not true_rows[row["id"]]["correct"] for row in found)
        assert said["wrong_share"] == pytest.approx(wrong / len(found), abs=5e-5)
        if said["noise_rate"] is not None:
            assert said["wrong_share"] == pytest.approx(said["noise_rate"])
        line = f"| `{name}` | {said['kind']} | {len(found)} | {wrong} | {wrong / len(found):.1%} |"
        assert line in readme


def test_each_kind_errs_in_its_own_way(pool: dict[str, Any], truth: dict[str, Any], true_rows: dict[str, Any]) -> None:
    kind_of = {name: row["kind"] for name, row in truth["sources"].items()}
    a, b = truth["swapped"]
    for name, found in pool.items():
        pairs = [(true_rows[row["id"]]["true"], row["output"]) for row in found]
        if kind_of[name] == "confuser":
            swap = {a: b, b: a}
            assert all(given == swap.get(true, true) for true, given in pairs)
            assert {true for true, _ in pairs} == set(truth["intents"])
        elif kind_of[name] == "outdated-scheme":
            assert all(given == truth["old_scheme"][true] for true, given in pairs)
        elif kind_of[name] == "off-topic":
            assert {true for true, _ in pairs} == {None}
        if kind_of[name] != "outdated-scheme":
            assert {given for _, given in pairs} <= set(truth["intents"])
    merged = Counter(truth["old_scheme"].values())
    assert max(merged.values()) == 2 and set(merged) - set(truth["intents"])


@pytest.mark.parametrize("split", ["validation", "test"])
def test_queries_are_two_hundred_from_clean_hands_over_all_intents(split: str, truth: dict[str, Any]) -> None:
    found = rows(SUPPORT / f"{split}.jsonl")
    counts = Counter(row["output"] for row in found)
    assert len(found) == 200 and set(counts) == set(truth["intents"])
    assert max(counts.values()) - min(counts.values()) <= 1


def test_no_query_is_a_near_duplicate_of_a_pool_row_or_of_the_other_split(
    pool: dict[str, Any], script: ModuleType
) -> None:
    validation, test = ([row["input"] for row in rows(SUPPORT / f"{s}.jsonl")] for s in ("validation", "test"))
    demonstrations = [row["input"] for found in pool.values() for row in found]
    assert max(likeness(validation + test, demonstrations)) < script.NEAR
    assert max(likeness(test, validation)) < script.NEAR


def test_near_duplicates_stand_in_their_source_alone(
    pool: dict[str, Any], truth: dict[str, Any], true_rows: dict[str, Any], script: ModuleType
) -> None:
    [copying] = [name for name, row in truth["sources"].items() if row["kind"] == "near-duplicates"]
    by_id = {row["id"]: row for found in pool.values() for row in found}
    alike = []
    for row in pool[copying]:
        original = by_id[true_rows[row["id"]]["copy_of"]]
        assert row["output"] == original["output"]
        alike += likeness([row["input"]], [original["input"]])
    assert min(alike) >= script.NEAR
    assert 0 < alike.count(1.0) < len(alike)
    others = [row["input"] for name, found in pool.items() if name != copying for row in found]
    assert max(likeness(others, others)) < script.NEAR


def test_particulars_of_the_queries_are_held_out_of_the_pool(script: ModuleType) -> None:
    for slot, values in script.SLOTS["held"].items():
        assert not set(values) & set(script.SLOTS["pool"][slot]), slot
    for intent, frames in script.FRAMES.items():
        assert not set(frames["held"]) & set(frames["pool"]), intent


def agreement(queries: list[dict[str, Any]], demonstrations: list[dict[str, Any]], k: int = 5) -> float:
    """Accuracy of a vote among each query's ``k`` nearest demonstrations by words in common."""
    words = [frozenset(re.findall(r"\w+", row["input"].lower())) for row in demonstrations]
    right = 0
    for query in queries:
        mine = frozenset(re.findall(r"\w+", query["input"].lower()))
        nearest = sorted(range(len(words)), key=lambda j: -len(mine & words[j]) / len(mine | words[j]))[:k]
        right += Counter(demonstrations[j]["output"] for j in nearest).most_common(1)[0][0] == query["output"]
    return right / len(queries)


def test_near_demonstrations_help_more_than_chance_and_noise_hurts(pool: dict[str, Any], truth: dict[str, Any]) -> None:
    queries = rows(SUPPORT / "test.jsonl")
    named = {(row["kind"], row["noise_rate"]): name for name, row in truth["sources"].items()}
    noisy = pool[named["label-noise", 0.6]]
    clean = pool[named["clean", 0.0]][: len(noisy)]
    chance = 1 / len(truth["intents"])
    assert 3 * chance < agreement(queries, clean) < 0.95  # alike in words is neither useless nor enough
    assert agreement(queries, noisy) < agreement(queries, clean) - 0.1


FACT_FILES = {"pool/gazetteer": 300, "validation": 150, "test": 100}


def stands(phrase: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(phrase)}\b", text) is not None


@pytest.mark.parametrize(("file", "count"), FACT_FILES.items())
def test_every_question_has_ten_documents_marked_truly(file: str, count: int) -> None:
    found = rows(FACTS / f"{file}.jsonl")
    assert len(found) == count
    for row in found:
        texts = row["context"].split("\n\n")
        assert len(texts) == len(set(texts)) == len(row["documents"]) == 10
        assert row["answers"][0] == row["output"]
        by_mark: dict[str, list[str]] = defaultdict(list)
        for mark, text in zip(row["documents"], texts, strict=True):
            by_mark[mark].append(text)
        assert set(by_mark) <= {"relevant", "misleading", "distractor"}
        assert 1 <= len(by_mark["relevant"]) <= 3
        assert all(stands(row["output"], text) for text in by_mark["relevant"])
        assert not any(
            stands(form, text) for text in by_mark["misleading"] + by_mark["distractor"] for form in row["answers"]
        )
        assert len(by_mark["misleading"]) == len(row["misleading_answers"]) == len(row["misleading_ways"])
        for wrong in row["misleading_answers"]:
            assert wrong not in row["answers"]
            assert any(stands(wrong, text) for text in by_mark["misleading"])
        assert all(2 <= text.count("\n") + text.count(". ") + 1 <= 5 for text in texts)


def test_facts_are_asked_about_once_and_in_varied_words() -> None:
    asked = {file: rows(FACTS / f"{file}.jsonl") for file in FACT_FILES}
    name = re.compile(
        r"\b(?:MV )?[A-Z]\w+ ?(?:Observatory|dialect|cheese|Lighthouse|Pippin|Light Railway|Hut|Lantern Fair|lyre|)"
    )
    entities = {file: {name.findall(row["input"])[-1] for row in found} for file, found in asked.items()}
    assert not entities["validation"] & entities["test"]
    assert not entities["pool/gazetteer"] & (entities["validation"] | entities["test"])
    wordings = Counter((row["kind"], row["relation"]) for found in asked.values() for row in found)
    assert len(wordings) == 40
    inputs = [row["input"] for found in asked.values() for row in found]
    assert len(inputs) == len(set(inputs))


def test_some_questions_have_misleading_documents_and_some_have_none() -> None:
    for file in FACT_FILES:
        traps = Counter(row["documents"].count("misleading") for row in rows(FACTS / f"{file}.jsonl"))
        assert set(traps) == {0, 1, 2, 3}
    ways = {way for file in FACT_FILES for row in rows(FACTS / f"{file}.jsonl") for way in row["misleading_ways"]}
    assert ways == {"wrong", "hedged", "outdated", "confusable"}


def test_the_folder_stays_small() -> None:
    assert sum(path.stat().st_size for path in DATA.rglob("*.json*")) < 2.5e6
