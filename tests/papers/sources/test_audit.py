"""An audit of recorded retrievals: the log's formats, the contract of its result, registered domains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.index.readers import parquet_format, records
from icl_curate.engine.papers.sources.audit import _gain, audit, read_log, registered_domain
from scipy import stats


def recorded(seed: int, questions: int, key: str = "retrieved_sources") -> list[dict[str, Any]]:
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(questions):
        order = draw.permutation(8)
        right = draw.random(8) < np.where(np.arange(8) < 3, 0.1, 0.75)
        rows.append(
            {
                "question": f"question {seed}-{number}",
                "correct_answers": ["yes", "indeed"],
                "retrieved_answers": ["yes" if right[i] else ("no" if i < 3 else f"no{i}") for i in order],
                key: [f"source{i}" for i in order],
            }
        )
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("by", [-1.0, 0.0, 1.0])
def test_questions_that_all_differ_alike_are_no_certainty(by: float) -> None:
    gain = _gain(np.full(40, by))
    low, high = gain.ci95
    never = stats.binomtest(0, 40).proportion_ci(method="wilson").high  # the largest share that may have been missed
    assert -1 <= low <= gain.mean == by <= high <= 1
    assert high - low == pytest.approx(2 * never)


def test_questions_that_were_chosen_on_are_told(tmp_path: Path) -> None:
    rows, others = recorded(1, 60), recorded(2, 50)
    log = write(tmp_path / "v.jsonl", rows)
    assert "also made on 60 of 60 test questions" in audit(log, log, k=5).notes[-1]
    again = [{**rows[0], "retrieved_answers": ["yes"] * 8}]  # retrieved at another time
    assert (
        "also made on 1 of 51 test questions" in audit(log, write(tmp_path / "t.jsonl", others + again), k=5).notes[-1]
    )
    for row in rows + others:
        del row["question"]
    bare = write(tmp_path / "bare.jsonl", rows)
    assert not any("also made on" in note for note in audit(bare, write(tmp_path / "t.jsonl", others), k=5).notes)
    assert "also made on 60 of 60" in audit(bare, bare, k=5).notes[-1]


def majority(row: dict[str, Any], pruned: list[str], k: int) -> bool:
    votes: dict[str, int] = {}
    kept = [a for a, s in zip(row["retrieved_answers"], row["retrieved_sources"], strict=True) if s not in pruned]
    for answer in kept[:k]:
        votes[answer] = votes.get(answer, 0) + 1
    return bool(votes) and max(votes, key=lambda a: votes[a]) in row["correct_answers"]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_the_report_keeps_its_contract(tmp_path: Path, ending: str) -> None:
    validation, test = recorded(1, 150), recorded(2, 250)
    report = audit(write(tmp_path / f"v{ending}", validation), write(tmp_path / f"t{ending}", test), k=5)
    found = json.loads(json.dumps(report.as_json()))
    assert (found["k"], found["validation"], found["test"]) == (5, 150, 250)
    assert found["notes"] == []
    for result in (*found["estimators"].values(), found["chosen"]):
        assert {"validation_accuracy", "test_accuracy", "pruned"} <= set(result)
    for result in (found["baseline"], *found["estimators"].values()):  # recounted from the log by hand
        for rows, key in ((validation, "validation_accuracy"), (test, "test_accuracy")):
            assert result[key] == pytest.approx(np.mean([majority(row, result["pruned"], 5) for row in rows]))
    assert {"source0", "source1", "source2"} <= set(found["estimators"]["reliability"]["pruned"])
    assert found["chosen"]["test_accuracy"] > found["baseline"]["test_accuracy"]
    low, high = found["chosen"]["test_gain"]["ci95"]
    assert 0 < low < found["chosen"]["test_accuracy"] - found["baseline"]["test_accuracy"] < high
    assert {row["source"] for row in found["sources"][:3]} == {"source0", "source1", "source2"}


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    rows = recorded(3, 80)
    one = audit(write(tmp_path / "a.jsonl", rows), k=3)
    two = audit(write(tmp_path / "a.parquet", rows), k=3)
    assert one.as_json() == two.as_json()


def test_without_a_test_log_the_report_says_so(tmp_path: Path) -> None:
    report = audit(write(tmp_path / "a.jsonl", recorded(1, 100)), k=5)
    assert report.test is None
    assert report.chosen.test_accuracy is None
    assert any("no test log" in note for note in report.notes)


def test_nothing_is_pruned_where_nothing_helps(tmp_path: Path) -> None:
    rows = recorded(1, 60)
    for row in rows:
        row["retrieved_answers"] = ["yes"] * 8
    report = audit(write(tmp_path / "a.jsonl", rows), k=5)
    assert report.chosen.pruned == []
    assert report.chosen.validation_accuracy == 1
    assert all(row.kept for row in report.sources)
    assert any("nothing is pruned" in note for note in report.notes)


def test_pages_of_a_site_are_one_source(tmp_path: Path) -> None:
    rows = recorded(4, 5, "retrieved_websites")
    for row in rows:
        row["retrieved_websites"] = [f"https://www.{s}.co.uk/p{i}" for i, s in enumerate(row["retrieved_websites"])]
    path = write(tmp_path / "a.jsonl", rows)
    assert set(read_log(path).sources[0]) == {f"source{i}.co.uk" for i in range(8)}
    assert read_log(path, group_by="source").sources[0] == rows[0]["retrieved_websites"]
    assert read_log(path).documents[0] == rows[0]["retrieved_websites"]


def test_answers_may_be_compared_normalised(tmp_path: Path) -> None:
    row = {"question": "", "correct_answers": ["the Eiffel Tower"], "retrieved_answers": ["Eiffel tower."]}
    path = write(tmp_path / "a.jsonl", [row | {"retrieved_sources": ["s"]}])
    assert read_log(path).right == [[0.0]]
    assert read_log(path, normalised=True).right == [[1.0]]


def test_a_value_is_never_nothing_and_a_number_is_a_number(tmp_path: Path) -> None:
    row = {"question": "", "correct_answers": ["A", "1.5", None], "retrieved_sources": ["s"] * 8}
    row["retrieved_answers"] = [None, "The", "-", "15", "-15", "a.", "1.50", "None"]
    path = write(tmp_path / "a.jsonl", [row])
    assert read_log(path, normalised=True).right == [[0, 0, 0, 0, 0, 1, 1, 0]]
    assert read_log(path).right == [[0.0] * 8]


def imputed(seed: int, records: int) -> list[dict[str, Any]]:
    """A made table whose city is missing: good sites spell it in several ways, a bad one always says the same."""
    draw = np.random.default_rng(seed)
    cities = {
        "new york": ["New York", "new york.", "NEW YORK!"],
        "st. louis": ["St. Louis", "st louis", "The St Louis"],
    }
    rows = []
    for number in range(records):
        city = ("new york", "st. louis")[number % 2]
        said = [str(draw.choice(cities[city])) if draw.random() < 0.9 else "Rome" for _ in range(3)]
        sites = [f"https://good{i}.example/{number}" for i in range(3)] + [f"https://bad.example/{i}" for i in range(3)]
        order = draw.permutation(6)
        rows.append(
            {
                "record": {"name": f"place {number}", "city": None},
                "column": "city",
                "correct_answers": [city, city.replace("new york", "new york city")],
                "retrieved_answers": [[*said, "Boston", "Boston", "Boston"][i] for i in order],
                "retrieved_websites": [sites[i] for i in order],
            }
        )
    return rows


def test_missing_values_of_a_table_are_compared_and_vote_as_values(tmp_path: Path) -> None:
    path, test = write(tmp_path / "v.jsonl", imputed(1, 120)), write(tmp_path / "t.parquet", imputed(2, 120))
    report = audit(path, test, k=6, task="imputation")
    assert report.as_json()["task"] == "imputation"
    assert report.chosen.pruned == ["bad.example"]
    assert report.chosen.test_accuracy is not None and report.chosen.test_accuracy > 0.95
    as_written = audit(path, test, k=6)
    assert as_written.baseline.validation_accuracy == 0.0  # no spelling is the accepted one
    assert report.baseline.validation_accuracy > 0
    gently = audit(path, k=2, task="imputation", uses=["prune"], rate=0.5, epochs=2)
    multilinear = gently.sources[0].scores["multilinear"]
    assert 0 < multilinear < 0.5  # two small steps, not fifty large ones
    with pytest.raises(UsageError, match="unknown use: burn"):
        audit(path, uses=["burn"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"correct_answers": ["a"], "retrieved_answers": ["a"]}', "not a recorded retrieval"),
        ('{"correct_answers": "a", "retrieved_answers": ["a"], "retrieved_sources": ["s"]}', "not a recorded"),
        ('{"correct_answers": ["a"], "retrieved_answers": ["a"], "retrieved_sources": []}', "1 answers but 0 sources"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = write(tmp_path / "a.jsonl", recorded(1, 2))
    with path.open("a", encoding="utf-8") as log:
        log.write(line + "\n")
    with pytest.raises(UsageError, match=complaint) as caught:
        audit(path)
    assert f"{path}:3" in caught.value.what
    assert caught.value.fix


def test_files_that_are_no_logs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such log"):
        audit(tmp_path / "nothing.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(UsageError, match="no recorded retrievals"):
        audit(tmp_path / "empty.jsonl")
    (tmp_path / "bad.parquet").write_bytes(b"not parquet")
    with pytest.raises(UsageError, match="not a Parquet file"):
        audit(tmp_path / "bad.parquet")
    with pytest.raises(UsageError, match="a folder"):
        audit(tmp_path)


def test_a_log_that_unpacks_to_far_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row | {"question": "x" * 10_000} for row in recorded(1, 20)]
    log = write(tmp_path / "log.parquet", rows)
    assert len(read_log(log).answers) == 20
    monkeypatch.setattr(parquet_format, "UNPACKED", 1 << 10)
    monkeypatch.setattr(parquet_format, "PACKED", 5)
    with pytest.raises(UsageError, match="unpacks from"):
        read_log(log)
    (tmp_path / "log.jsonl").write_bytes(b'{"question": "' + b"x" * 1_000)
    other = write(tmp_path / "other.parquet", [row | {"page": "x" * 10_000} for row in recorded(1, 20)])
    assert read_log(other).questions == read_log(write(tmp_path / "plain.parquet", recorded(1, 20))).questions
    monkeypatch.setattr(records, "LINE", 100)
    with pytest.raises(UsageError, match=r"log\.jsonl:1: the line is longer"):
        read_log(tmp_path / "log.jsonl")


@pytest.mark.parametrize(
    ("address", "domain"),
    [
        ("https://news.bbc.co.uk/sport?x=1", "bbc.co.uk"),
        ("HTTP://User@WWW.Example.COM:8080/a", "example.com"),
        ("en.wikipedia.org", "wikipedia.org"),
        ("//cdn.site.com.au#top", "site.com.au"),
        ("https://mail.web.de", "web.de"),
        ("http://news.bog5.in.ua", "bog5.in.ua"),
        ("https://t.co/abc", "t.co"),
        ("http://192.168.0.1:80/x", "192.168.0.1"),
        ("http://[2001:db8::1]/x", "[2001:db8::1]"),
        ("faq", "faq"),
        ("17", "17"),
        ("My notes v1.2", "My notes v1.2"),
    ],
)
def test_registered_domains(address: str, domain: str) -> None:
    assert registered_domain(address) == domain
