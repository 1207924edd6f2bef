"""Rows that a person verifies: drawn at random, kept at each verdict, read back as queries that teach."""

from __future__ import annotations

import codecs
import errno
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from factories.commands import SAMPLE, Run
from factories.copies import indexed, lines
from icl_curate.engine.base.errors import UsageError
from icl_curate.engine.export import verified
from icl_curate.engine.export.verified import COUNT, Verification, VerifyReport, drawn
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.pool.sets import members_of, set_text
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.demonstrations import fetch, find, verified_queries
from icl_curate.engine.store.workspace import Workspace

WORDS = ["amber", "birch", "cedar", "delta", "ember", "flint", "grove", "heron", "islet", "jetty"]
ROWS = [
    {"id": f"d{i}", "input": f"{WORDS[i % 10]} {WORDS[i // 10]}\u2028number {i}", "output": f"label {i % 3}",
     "source": f"s{i % 2}", "options": [f"label {j}" for j in range(3)], "place": i}
    for i in range(40)
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Workspace:
    return indexed(tmp_path / "w", 0.99, pool=lines(ROWS))


def ids(store: Workspace, seed: int = 0) -> list[str]:
    return [row.id for row in fetch(store, drawn(store, seed))]


def test_every_row_is_drawn_once_and_each_as_likely_first(store: Workspace) -> None:
    orders = [ids(store, seed) for seed in range(200)]
    assert all(sorted(order) == sorted(row["id"] for row in ROWS) for order in orders)
    first = Counter(order[0] for order in orders)
    assert len(first) > 30 and max(first.values()) < 20, "of 200 draws each of 40 rows is expected five times"
    assert ids(store, 3) == orders[3]


def test_with_vectors_the_first_rows_have_more_of_what_the_pool_has(
    support: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Workspace.open(support)
    told = map(json.loads, (SAMPLE / "support" / "truth_rows.jsonl").read_text().splitlines())
    true = {row["id"]: row["true"] for row in told}

    def topics() -> float:
        first = [fetch(store, drawn(store, seed)[:20]) for seed in range(30)]
        return float(np.mean([len({true.get(row.id) for row in rows}) for rows in first]))

    every, with_vectors = {*ids(store)}, topics()
    monkeypatch.setattr(verified, "spread", lambda vectors, draw: np.arange(len(vectors)))
    assert {*ids(store)} == every and with_vectors > topics() + 1


def test_rows_that_are_pruned_repeated_or_asked_are_not_drawn(tmp_path: Path) -> None:
    rows = [*ROWS[:6], ROWS[0] | {"id": "copy"}, ROWS[1] | {"id": "asked"}]
    store = indexed(tmp_path / "w", 0.99, pool=lines(rows), test=lines([ROWS[1] | {"id": "query"}]))
    decide(store, "prune", "demonstration", ["d2"])
    order = ids(store)
    assert sorted(set(order) - {"d0", "copy"}) == ["d3", "d4", "d5"]
    assert len(order) == 4 and len({"d0", "copy"} & set(order)) == 1


def test_the_order_stays_when_rows_are_added(store: Workspace, tmp_path: Path) -> None:
    before = ids(store)
    more = tmp_path / "more.jsonl"
    more.write_text(
        lines({"id": f"e{i}", "input": f"quite another text {i * 7919}", "output": "label 0"} for i in range(9))
    )
    index_pool(store, IndexPlan(paths=(str(more),), near_duplicate=0.99))
    after = ids(store)
    assert len(after) == 49 and [name for name in after if name.startswith("d")] == before


def test_each_verdict_is_in_the_file_at_once_and_another_run_goes_on(store: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "verified.jsonl"
    order = ids(store)
    rows = Verification(store, file, 4)
    assert rows.row is not None and rows.row.id == order[0] and not file.exists()
    rows.verify(rows.row.output)
    assert [json.loads(line)["id"] for line in file.read_text().strip().split("\n")] == [f"verified-{order[0]}"]
    rows.pass_over()
    assert rows.row is not None and rows.row.id == order[2], "the second one is unclear"
    rows.verify(next(option for option in rows.row.options if option != rows.row.output))
    again = Verification(store, file, 4)
    assert again.verified == 2 and again.row is not None and again.row.id == order[1]
    again.pass_over()
    for name in order[3:5]:
        assert again.row is not None and again.row.id == name
        again.verify(again.row.output)
    assert again.row is None, "there are four"
    with pytest.raises(UsageError, match="no row is left to verify"):
        again.verify("a verdict that would be lost")
    report = again.report()
    assert (report.verified, report.wrong, report.count) == (4, 1, 4)
    wrong = {each.source for each in report.sources if each.wrong}
    assert wrong == {find(store, order[2]).source}
    assert sum(each.verified for each in report.sources) == 4
    assert VerifyReport.from_json(report.as_json()) == report


def test_the_latest_verdicts_are_taken_back(store: Workspace, tmp_path: Path) -> None:
    file, order = tmp_path / "v.jsonl", ids(store)
    rows = Verification(store, file, COUNT)
    for _ in range(2):
        assert rows.row is not None
        rows.verify(rows.row.output)
    assert rows.take_back() and rows.row is not None and rows.row.id == order[1]
    assert len(file.read_text().strip().split("\n")) == 1
    assert rows.take_back() and not rows.take_back()
    assert file.read_text() == "" and rows.row.id == order[0]


def test_a_row_that_was_passed_over_by_mistake_is_the_next_again(store: Workspace, tmp_path: Path) -> None:
    file, order = tmp_path / "v.jsonl", ids(store)
    rows = Verification(store, file, 3)
    rows.verify("label 0")
    rows.pass_over()
    rows.verify("label 0")
    for name, count in ((order[2], 1), (order[1], 1), (order[0], 0)):
        assert rows.take_back() and rows.row is not None
        assert (rows.row.id, rows.verified, rows.judged) == (name, count, count)
    assert not rows.take_back()
    for _ in range(3):
        rows.verify("label 0")
    assert [json.loads(line)["id"] for line in file.read_text().split("\n")[:-1]] == [
        f"verified-{name}" for name in order[:3]
    ], "in the order in which they were drawn"
    rows.pass_over()
    assert rows.take_back() and rows.judged == 2, "after the last one no row is passed over"


def test_a_file_that_an_editor_saved_is_gone_on_with_and_keeps_its_permissions(
    store: Workspace, tmp_path: Path
) -> None:
    file = tmp_path / "v.jsonl"
    Verification(store, file).verify("label 0")
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(codecs.BOM_UTF8 + b"\n" + file.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    file.chmod(0o664)
    rows = Verification(store, file)
    assert rows.verified == 1
    rows.verify("label 1")
    assert Verification(store, file).verified == 2 and file.stat().st_mode & 0o777 == 0o664


def test_duplicates_of_a_verified_row_are_not_drawn(tmp_path: Path) -> None:
    copies = [row | {"id": f"copy {row['id']}"} for row in ROWS[:4]]
    store = indexed(tmp_path / "w", 0.99, pool=lines([*ROWS[:4], *copies]))
    rows = Verification(store, tmp_path / "v.jsonl", 1)
    assert rows.row is not None
    first = rows.row.id.removeprefix("copy ")
    rows.verify(rows.row.output)
    decide(store, "prune", "demonstration", [json.loads(rows.path.read_text())["id"].removeprefix("verified-")])
    for seed in range(5):
        again = Verification(store, tmp_path / "v.jsonl", 9, seed)
        left = {row.id.removeprefix("copy ") for row in fetch(store, again._ahead)}
        assert left == {"d0", "d1", "d2", "d3"} - {first}


def test_further_answers_are_those_of_the_output_that_is_right(tmp_path: Path) -> None:
    row = {"output": "Paris", "answers": ["City of Paris"]}
    rows = [row | {"id": f"q{i}", "input": f"the capital {i * 31}"} for i in (1, 2)]
    verdicts = Verification(indexed(tmp_path / "w", 0.99, pool=lines(rows)), tmp_path / "v.jsonl")
    for output in ("Paris", "Lyon"):
        verdicts.verify(output)
    right, corrected = map(json.loads, verdicts.path.read_text().splitlines())
    assert right["answers"] == ["City of Paris"] and "answers" not in corrected


@pytest.mark.parametrize("output", ["", " ", "C"])
def test_an_output_that_cannot_be_right_is_refused(tmp_path: Path, output: str) -> None:
    rows = [{"input": f"question {i * 31}", "output": "A", "options": ["A", "B"]} for i in range(3)]
    store = indexed(tmp_path / "w", 0.99, pool=lines(rows))
    verdicts = Verification(store, tmp_path / "v.jsonl")
    with pytest.raises(UsageError, match="is no right output"):
        verdicts.verify(output)
    assert verdicts.verified == 0 and not verdicts.path.exists()
    verdicts.verify("B")
    assert verdicts.verified == 1


def test_a_pool_without_a_row_to_verify_is_told(store: Workspace, tmp_path: Path, run: Run) -> None:
    decide(store, "prune", "demonstration", ids(store))
    refused = run("verify", tmp_path / "v.jsonl", "-w", store.path)
    assert refused.code == 2 and "no active row is left" in refused.err and "icl-curate index" in refused.err


def test_passing_all_rows_over_begins_again(tmp_path: Path) -> None:
    store = indexed(tmp_path / "w", 0.99, pool=lines(ROWS[:3]))
    rows, seen = Verification(store, tmp_path / "v.jsonl", 2), []
    for _ in range(4):
        assert rows.row is not None
        seen.append(rows.row.id)
        rows.pass_over()
    assert len(set(seen[:3])) == 3 and seen[3] == seen[0]
    for _ in range(2):
        assert rows.row is not None
        rows.verify("label 0")
    assert rows.row is None


@pytest.mark.parametrize(
    "text",
    [
        '{"id": "d1", "input": "a", "output": "b"}\n',
        "no JSON\n",
        "[1]\n",
        '{"id": "verified-d1", "input": "no output"}\n',
        '{"id": "verified-d1", "input": "no output", "output": null}\n',
        "\udcff\n",
        "[" * 100_000,
    ],
)
def test_a_file_of_somebody_elses_is_left_as_it_is(store: Workspace, tmp_path: Path, text: str) -> None:
    file = tmp_path / "theirs.jsonl"
    file.write_bytes(text.encode(errors="surrogateescape"))
    before = file.read_bytes()
    with pytest.raises(UsageError, match=r"theirs\.jsonl") as raised:
        Verification(store, file)
    assert raised.value.fix == "another file: icl-curate verify FILE" and file.read_bytes() == before


def test_a_verdict_that_cannot_be_written_changes_nothing(
    store: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "v.jsonl"
    rows = Verification(store, file)
    rows.verify("label 0")
    second, before = rows.row, file.read_text()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        rows.verify("label 0")
    with pytest.raises(OSError, match="full"):
        rows.take_back()
    assert rows.row is second and rows.verified == 1 and file.read_text() == before
    assert [*tmp_path.glob(".v.jsonl*")] == []


def test_a_next_row_that_cannot_be_read_leaves_the_present_one_unjudged(
    store: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Verification(store, tmp_path / "v.jsonl")
    first = rows.row

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(verified, "fetch", broken)
        with pytest.raises(OSError, match="broken"):
            rows.verify("label 0")
    assert rows.row is first and rows.verified == 0 and not (tmp_path / "v.jsonl").exists()
    rows.verify("label 0")
    assert rows.verified == 1


def test_a_set_in_another_order_is_not_wrong(tmp_path: Path) -> None:
    rows = [{"id": f"d{i}", "input": f"text {i * 31}", "output": ["a", f"b{i % 3}"]} for i in range(40)]
    store = indexed(tmp_path / "w", 0.99, pool=lines(rows))
    assert Verification(store, tmp_path / "v.jsonl").task.kind == "sets"
    verdicts = Verification(store, tmp_path / "v.jsonl", 2)
    for turned in (True, False):
        assert verdicts.row is not None
        members = members_of(verdicts.row.output)
        verdicts.verify(set_text(members[::-1] if turned else [*members, "c"]), new=not turned)
    assert verdicts.report().wrong == 1


def test_two_who_verify_into_one_file_lose_nothing(store: Workspace, tmp_path: Path) -> None:
    file, link = tmp_path / "v.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(file)
    one, other = Verification(store, file), Verification(store, link)
    one.verify("label 0")
    before, row = file.read_text(), other.row
    with pytest.raises(UsageError, match="was changed meanwhile"):
        other.verify("label 1")
    assert file.read_text() == before and other.row is row
    again = Verification(store, link)
    again.verify("label 2")
    assert link.is_symlink() and len(file.read_text().strip().split("\n")) == 2


def test_verified_rows_are_queries_with_all_their_fields(store: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "v.jsonl"
    rows = Verification(store, file, 12)
    said = {}
    while rows.row is not None:
        said[f"verified-{rows.row.id}"] = f"label {(int(rows.row.id[1:]) + 1) % 3}"
        rows.verify(said[f"verified-{rows.row.id}"])
    done = index_pool(store, IndexPlan(validation=(str(file),), near_duplicate=0.99))
    assert (done.validation, done.demonstrations, done.skipped) == (12, 40, ()) and len(done.leaking or ()) == 12
    queries = verified_queries(store)
    assert {query.id: query.answers[0] for query in queries} == said
    by_id = {row.id: row for row in fetch(store, [query.row for query in queries if query.row is not None])}
    for name, row in by_id.items():
        mine = find(store, name.removeprefix("verified-"))
        assert (row.input, row.options, row.source, row.metadata) == (
            mine.input,
            mine.options,
            mine.source,
            mine.metadata,
        )
    assert Verification(store, file, 12).report().wrong == 12, "and they are still known in the pool"


def test_thirty_of_a_pool_with_wrong_labels_teach_check(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICL_CURATE_DTYPE", "float32")  # which thirty are drawn depends on the last digits of vectors
    support, work = SAMPLE / "support", tmp_path / "w"
    truth = {row["id"]: row for row in map(json.loads, (support / "truth_rows.jsonl").read_text().splitlines())}
    wrong = {name for name, row in truth.items() if not row["correct"]}
    assert run("index", *sorted(map(str, (support / "pool").glob("*.jsonl"))), "-w", work).code == 0

    def found() -> tuple[set[str], list[str]]:
        done = run("check", "--kind", "label", "-n", 2000, "-w", work, "--json").json
        return {row["id"] for row in done["rows"]}, done["notes"]

    untaught, notes = found()
    assert any("icl-curate verify" in note for note in notes)
    store, file = Workspace.open(work), tmp_path / "verified.jsonl"
    rows = Verification(store, file, 30)
    while rows.row is not None:
        right = truth[rows.row.id].get("true")
        rows.verify(right) if right else rows.pass_over()
    assert run("index", "--validation", file, "-w", work).code == 0
    taught, notes = found()
    assert not any("icl-curate verify" in note for note in notes)
    rest = wrong - {json.loads(line)["id"].removeprefix("verified-") for line in file.read_text().strip().split("\n")}
    # where most rows are right thirty verdicts change little; where they decide: tests/checks/test_check.py
    assert len(taught & rest) >= 0.97 * len(untaught & rest) > 0.8 * len(rest)
    assert len(taught - wrong) <= len(untaught - wrong) + 5, (
        "most rows are right here, and say so without verdicts, too"
    )


def test_the_command_tells_what_was_verified_and_what_is_left(run: Run, store: Workspace, tmp_path: Path) -> None:
    file, order = tmp_path / "v.jsonl", ids(store)
    told = run("verify", file, "-n", 2, "-w", store.path, "--json").json
    assert (told["kind"], told["verified"], [row["id"] for row in told["left"]]) == ("verification", 0, order[:2])
    refused = run("verify", file, "-n", 2, "-w", store.path)
    assert refused.code == 2 and "verify needs a terminal" in refused.err and " --json" in refused.err
    rows = Verification(store, file, 2)
    while rows.row:
        rows.verify(next(option for option in rows.row.options if option != rows.row.output))
    done = run("verify", file, "-n", 2, "-w", store.path)
    assert done.code == 0, "nothing is left to ask"
    assert "2 of 2 verified" in done.out and "2 of 2 were wrong in the pool, 34% to 100% of it (95 %)" in done.out
    assert f"next: icl-curate index -w {store.path} --validation {file}" in done.out
