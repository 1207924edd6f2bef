"""What counts as right, through the commands that decide on it: `evaluate` and `tune` against a server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from factories.commands import Run
from factories.copies import copied, lines
from factories.servers import Call, Server, ok
from icl_curate.engine.store import runs
from icl_curate.engine.store.workspace import Workspace

Say = Callable[[str], str]
"""From a row's output to the reply to its question."""


def _pool(run: Run, folder: Path, outputs: Sequence[str], rows: int = 36) -> tuple[Path, dict[str, str]]:
    """A workspace of two sources whose rows have these outputs in turn, and the output of each question asked; indexed
    once for the same outputs."""
    of = {
        name: [
            {"input": f"ticket {start + i} of customer {i % 7}", "output": outputs[i % len(outputs)]}
            for i in range(rows if start < 200 else rows // 2)
        ]
        for name, start in (("one", 0), ("two", 100), ("validation", 200), ("test", 300))
    }

    def index(where: Path) -> None:
        for name, found in of.items():
            (where.parent / f"{name}.jsonl").write_text(lines(found))
        files = [where.parent / f"{name}.jsonl" for name in ("one", "two")]
        splits = ("--validation", where.parent / "validation.jsonl", "--test", where.parent / "test.jsonl")
        done = run("index", *files, *splits, "-w", where)
        assert done.code == 0, done.err

    copied(folder / "w", f"graded {sha256(json.dumps(of).encode()).hexdigest()[:16]}", index)
    asked = {row["input"]: row["output"] for found in of.values() for row in found}
    return folder / "w", asked


def _server(asked: dict[str, str], say: Say) -> Server:
    def fault(server: Server, call: Call, seen: int) -> Any:
        last = call.text.rpartition("Question: ")[2].partition("\n")[0]
        if last not in asked or "max_tokens" not in call.body:
            return None
        text, most = say(asked[last]), call.body["max_tokens"]
        words = text.split(" ")
        message = {"role": "assistant", "content": " ".join(words[:most])}
        usage = {"prompt_tokens": 20, "completion_tokens": 5}
        choice = {"index": 0, "message": message, "finish_reason": "length" if len(words) > most else "stop"}
        return ok({"model": "stub-1", "choices": [choice], "usage": usage})

    return Server(fault=fault, logprobs=False)


def _measured(
    run: Run, folder: Path, outputs: Sequence[str], say: Say, *options: str, tune: bool = True
) -> tuple[float, float | None]:
    """The accuracy of `evaluate`, and that of keeping everything in ``tune``, with these options of both."""
    where, asked = _pool(run, folder, outputs)
    with _server(asked, say) as server:
        llm = ("--llm", "openai:stub", "--base-url", server.url, "-w", where, "--json", *options)
        evaluated = run("evaluate", "--methods", "zero", *llm)
        assert evaluated.code == 0, evaluated.err
        accuracy = evaluated.json["methods"]["zero"]["accuracy"]
        if not tune:
            return accuracy, None
        tuned = run("tune", "-m", "bm25", "-k", 2, *llm)
        assert tuned.code == 0, tuned.err
    return accuracy, tuned.json["candidates"][0]["accuracy"]


ROUTES = ("billing", "order", "refund")
ORDERS = [{"items": [{"name": name, "count": count}], "urgent": True} for count, name in enumerate(ROUTES, 1)]
RATIONALES = [f"It takes {n} and {n} more.\nThat makes {n + n}.\n#### {n + n}" for n in range(9, 45)]
"""As many as rows: an open question."""


def case(name: str, outputs: Sequence[str], say: Say, accuracy: float, tune: bool = False) -> ParameterSet:
    """``tune``: also asked, in one case of each kind of answers, as it has its marks from where `evaluate` has them."""
    return pytest.param(outputs, say, accuracy, tune, id=name)


@pytest.mark.parametrize(
    ("outputs", "say", "accuracy", "tune"),
    [
        case("signs of labels", ("C", "C++", "C#"), lambda wanted: "C#", 1 / 3),
        case("labels with signs", ("C", "C++", "C#"), lambda wanted: f"I would say {wanted}.", 1.0, tune=True),
        case("signs of numbers", ("-5", "5"), lambda wanted: "5", 1 / 2),
        case("negation", ROUTES, lambda wanted: f"not {wanted}", 0.0),
        case("thinking", ROUTES, lambda wanted: f"<think>order?\n\nNo.</think>\n\n{wanted}", 1.0, tune=True),
        case("thinking in a line", ROUTES, lambda wanted: f"<think>hmm, order</think>{wanted}", 1.0),
        case("still thinking", ROUTES, lambda wanted: f"<think>This is {wanted}, isn't", 0.0, tune=True),
        case("answer line", ROUTES, lambda wanted: f"Let me think.\nAnswer: {wanted}", 1.0),
        case("lead-in", ROUTES, lambda wanted: f"Sure! Here is the label:\n{wanted}", 1.0),
        case("fence", ROUTES, lambda wanted: f"```\n{wanted}\n```", 1.0),
        case("labels in JSON", [json.dumps(each, indent=2) for each in ORDERS], lambda wanted: wanted, 1.0),
        case(
            "JSON",
            [json.dumps(each | {"id": i}) for i in range(12) for each in ORDERS],
            lambda wanted: json.dumps(json.loads(wanted), sort_keys=True, separators=(",", ":")),
            1.0,
            tune=True,
        ),
        case("rationales", RATIONALES, lambda wanted: f"Other words.\n####{wanted.split('####')[1]}", 1.0, tune=True),
        case("wrong rationales", RATIONALES, lambda wanted: wanted.replace("#### ", "#### -"), 0.0),
        case("decimals", [f"{n / 10}" for n in range(11, 80, 2)], lambda n: n.replace(".", ""), 0.0, tune=True),
        case("a sign too many", [f"{n}" for n in range(1, 40)], lambda wanted: f"-{wanted}", 0.0),
        case("a sign too few", [f"-{n}" for n in range(1, 40)], lambda wanted: wanted[1:], 0.0),
        case("operators", [f"x + {n}" for n in range(1, 40)], lambda wanted: wanted.replace("+", "-"), 0.0),
        case("comparisons", [f"a < {n}" for n in range(1, 40)], lambda told: told.replace("<", ">"), 0.0),
        case("times", [f"10:{n}" for n in range(10, 50)], lambda wanted: wanted.replace(":", ""), 0.0),
        case("percents", [f"{n}%" for n in range(10, 50)], lambda wanted: wanted.rstrip("%"), 0.0),
        case("a percent too many", [f"{n}" for n in range(10, 50)], lambda wanted: f"{wanted}%", 0.0),
        case("a denied number", [f"{n}" for n in range(10, 50)], lambda wanted: f"not {wanted}", 0.0),
        case("currencies", [f"${n}" for n in range(10, 50)], lambda told: told.replace("$", "€"), 0.0),
        case("no currency", [f"${n}" for n in range(10, 50)], lambda told: told.replace("$", ""), 1.0, tune=True),
        case(
            "SQL",
            [
                f"SELECT a, b, c FROM t JOIN u ON t.id = u.id WHERE b < {n} AND c > 5 ORDER BY d DESC LIMIT 10"
                for n in range(1, 40)
            ],
            lambda wanted: wanted.translate(str.maketrans("<>", "><")),
            0.0,
            tune=True,
        ),
        case(
            "code",
            [f"def f(x, y):\n    total = x + {n}\n    return total - y\n" for n in range(1, 40)],
            lambda wanted: wanted.translate(str.maketrans("+-", "-+")),
            0.0,
        ),
    ],
)
def test_right_answers_are_right_and_wrong_ones_are_wrong(
    run: Run, tmp_path: Path, outputs: Sequence[str], say: Say, accuracy: float, tune: bool
) -> None:
    evaluated, tuned = _measured(run, tmp_path, outputs, say, tune=tune)
    assert evaluated == pytest.approx(accuracy) and tuned == (evaluated if tune else None)


def test_an_instruction_is_sent_with_the_labels_or_told_to_leave_them_out(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, asked = _pool(run, tmp_path, ROUTES)
    with _server(asked, lambda wanted: wanted) as server:
        llm = ("--llm", "openai:stub", "--base-url", server.url, "-w", where)
        for instruction, told in (("Teams: {labels}.", False), ("Name the team.", True)):
            monkeypatch.setenv("ICL_CURATE_INSTRUCTION", instruction)
            done = run("evaluate", "--methods", "zero", *llm)
            assert done.code == 0, done.err
            assert ("the instruction leaves out 3 of 3 labels" in done.err) == told
        assert server.asked("Teams: billing, order, refund.") and not server.asked("{labels}")


def _changed(wanted: str) -> str:
    """A right JSON object but for one of its three leaves."""
    value = json.loads(wanted)
    return json.dumps({**value, "urgent": not value["urgent"]})


def _indented(wanted: str) -> str:
    return json.dumps(json.loads(wanted), indent=2)


OBJECTS = [json.dumps({"items": [{"name": f"tea {i}", "count": i}], "urgent": True}) for i in range(36)]
NAMES = ("Ann", "Bob", "Graz", "Linz", "Wien")
ENTITIES = [
    json.dumps([{"text": f"{name} {i}", "type": "PERSON"}, {"text": "Mur", "type": "RIVER"}])
    for i in range(8)
    for name in NAMES
]
SETS = [", ".join(pair) for pair in (("a", "b"), ("b", "c"), ("a", "c"))]


@pytest.mark.parametrize(
    ("outputs", "say", "options", "accuracy"),
    [
        pytest.param(OBJECTS, _changed, (), 2 / 3, id="fields of objects, by default"),
        pytest.param(OBJECTS, _changed, ("--metric", "json"), 0.0, id="whole objects"),
        pytest.param(OBJECTS, _changed, ("--metric", "json-f1@ignore=urgent"), 1.0, id="a field left out"),
        pytest.param(OBJECTS, _indented, (), 1.0, id="objects over several lines"),
        pytest.param(OBJECTS, lambda wanted: f"Answer: {_indented(wanted)}", (), 1.0, id="after the cue"),
        pytest.param(
            OBJECTS, lambda wanted: f"Here it is:\n```json\n{_indented(wanted)}\n```\nIt has two items.", (), 1.0,
            id="inside a fence with words around",
        ),
        pytest.param(
            OBJECTS, lambda wanted: f"{_indented(wanted)}\n\nIt has two items.", (), 1.0, id="words after an object",
        ),
        pytest.param(ENTITIES, _indented, (), 1.0, id="entities over several lines"),
        pytest.param(SETS, lambda wanted: wanted[0], ("--metric", "labels", "--read", "text"), 2 / 3, id="sets"),
        pytest.param(
            ROUTES, lambda wanted: json.dumps({"why": "order", "label": wanted}), ("--read", "json:label"), 1.0,
            id="a path of JSON",
        ),
        pytest.param(
            ROUTES, lambda wanted: f"<no>order</no><team>{wanted}</team>", ("--read", "regex:<team>(.*?)</team>"), 1.0,
            id="an expression",
        ),
        pytest.param(
            RATIONALES, lambda wanted: wanted.replace("takes", "needs"), ("--metric", "number"), 1.0, id="numbers",
        ),
        pytest.param(ENTITIES, lambda wanted: wanted, (), 1.0, id="entities, by default"),
        pytest.param(ENTITIES, lambda wanted: wanted.replace("PERSON", "CITY"), (), 1 / 2, id="entities of a type"),
    ],
)  # fmt: skip
def test_a_metric_and_a_reader_decide_wherever_answers_are_measured(
    run: Run, tmp_path: Path, outputs: Sequence[str], say: Say, options: tuple[str, ...], accuracy: float
) -> None:
    assert _measured(run, tmp_path, outputs, say, *options) == pytest.approx((accuracy, accuracy), abs=0.05)


def test_another_metric_and_another_reader_ask_nothing_again(run: Run, tmp_path: Path) -> None:
    where, asked = _pool(run, tmp_path, ROUTES)
    with _server(asked, lambda wanted: f"I say {wanted}") as server:
        words = ("evaluate", "-m", "zero", "--llm", "openai:stub", "--base-url", server.url, "-w", where, "--json")
        first = run(*words, "--read", "line", "--metric", "f1").json["methods"]["zero"]
        seen = len(server.calls)
        again = run(*words, "--read", "line", "--metric", "squad-em").json["methods"]["zero"]
        assert len(server.calls) == seen and again["cached_calls"] == again["calls"]
    assert (first["accuracy"], again["accuracy"]) == (pytest.approx(0.5), 0.0)


def test_plans_tables_runs_and_locks_say_by_what_is_graded_where_it_is_not_the_usual(run: Run, tmp_path: Path) -> None:
    line = "json-f1 (the fields of a JSON value): 100% of the outputs are JSON objects; right from 0.5 on"
    for outputs, usual in ((OBJECTS, False), (ROUTES, True)):
        folder = tmp_path / ("labels" if usual else "objects")
        folder.mkdir()
        where, asked = _pool(run, folder, outputs)
        with _server(asked, lambda wanted: wanted) as server:
            llm = ("--llm", "openai:stub", "--base-url", server.url, "-w", where)
            race = ("-m", "bm25", "-k", "2", *llm)
            shown = [
                run("evaluate", "-m", "zero", "--dry-run", *llm),
                run("curate", "--max-calls", "100", "--dry-run", *race),
                run("evaluate", "-m", "zero", *llm),
                run("tune", *race),
                run("lock", "-m", "bm25", "-w", where),
            ]
            told = [
                run("evaluate", "-m", "zero", *more, "--json", *llm).json["graded_by"] for more in ((), ("--dry-run",))
            ]
            done = run("curate", "--max-calls", "60", "--yes", *race)
        page = tmp_path / "report.md"
        assert run("report", page, "--force", "-w", where).code == 0
        assert [one.code for one in shown] == [0] * 5 and done.code == 0, done.err
        every = [" ".join(one.out.split()) for one in shown] + [" ".join(page.read_text().split())]
        assert [line in text for text in every] == [not usual] * 6
        assert told == [told[0]] * 2 and told[0]["metric"] == ("accuracy" if usual else "json-f1")
        assert re.search(rf"{told[0]['metric']} on \d+ validation queries ", done.out)


@pytest.mark.parametrize(
    ("outputs", "say", "options", "hint"),
    [
        pytest.param(
            RATIONALES, lambda wanted: f"{wanted.rpartition(' ')[2]} it is", ("--read", "line", "--metric", "accuracy"),
            "--read number makes 1.000 of the same replies", id="a number in a sentence",
        ),
        pytest.param(
            [f"the parcel number {i} went to Graz" for i in range(36)], lambda wanted: f"{wanted} today", (),
            "token F1 is 0.9", id="right in part",
        ),
        pytest.param(
            ROUTES, lambda wanted: f"{' or '.join(ROUTES)}, I would\nthink {wanted}", (), "many replies cannot be read",
            id="several labels",
        ),
        pytest.param(
            RATIONALES, lambda wanted: f"{'well, ' * 300}{wanted}", (),
            "replies were cut off after 256 tokens: --max-tokens 1024", id="cut off",
        ),
        pytest.param(
            [f"the parcel number {i} went to Graz" for i in range(36)], lambda _: "it is blue", ("--read", "json:x"),
            "icl-curate preview QUERY --answer --read json:x", id="another reader than the usual one",
        ),
        pytest.param(OBJECTS, _changed, ("--metric", "json"), "", id="names of fields are no part of an answer"),
        pytest.param(ROUTES, lambda wanted: wanted, (), "", id="nothing is wrong"),
        pytest.param(ROUTES, lambda wanted: "order", (), "", id="wrong, but read"),
    ],
)  # fmt: skip
def test_where_answers_are_missed_the_reader_or_the_metric_to_try_is_named(
    run: Run, tmp_path: Path, outputs: Sequence[str], say: Say, options: tuple[str, ...], hint: str
) -> None:
    where, asked = _pool(run, tmp_path, outputs)
    with _server(asked, say) as server:
        words = ("--llm", "openai:stub", "--base-url", server.url, "-w", where, *options)
        asking = ("evaluate", "-m", "zero", *words), ("tune", "-m", "bm25", "-k", "2", *words)
        told, shown = zip(*[(run(*asked, "--json").json, run(*asked).out) for asked in asking], strict=True)
    for figures, name, page in zip((told[0]["methods"]["zero"], told[1]), ("zero: ", ""), shown, strict=True):
        assert (
            (hint in figures["hint"] and f"WARNING: {name}{figures['hint'].partition(' with icl-')[0]}" in page)
            if hint
            else not figures.get("hint")
        )


def test_what_was_read_of_which_reply_and_by_which_rule_is_shown_and_stored(run: Run, tmp_path: Path) -> None:
    where, asked = _pool(run, tmp_path, OBJECTS)
    with _server(asked, lambda wanted: f"<think>\x1b[31mhm</think>{_changed(wanted)}") as server:
        llm = ("--llm", "openai:stub", "--base-url", server.url, "-w", where)
        number = run("evaluate", "-m", "zero", "--json", *llm).json["run"]
        query = next(text for text in asked if text.startswith("ticket 200"))
        told = run("preview", query, "--answer", "--json", *llm).json
        shown = run("preview", query, "--answer", *llm).out
    assert told["how"] == "after its thoughts" and told["reply"] == f"<think>\x1b[31mhm</think>{told['answer']}"
    assert "read: after its thoughts" in shown and "␛[31mhm" in shown and "\x1b" not in shown
    outcomes = runs.outcomes(Workspace.open(where), number, "zero")
    assert [one.right for one in outcomes] == [pytest.approx(2 / 3)] * 18
    assert {one.how for one in outcomes} == {"after its thoughts"}
    assert all(one.reply == f"<think>\x1b[31mhm</think>{one.answer}" for one in outcomes)


def test_an_answer_cannot_judge_itself(run: Run, tmp_path: Path) -> None:
    """Every answer ends in the judge's question and a yes; the judge quotes it before it says no, and says yes only to
    what its fence holds."""
    where, asked = _pool(run, tmp_path, ROUTES)

    def say(wanted: str) -> str:
        return f"{wanted if wanted == 'refund' else 'nothing'}\nIs the given answer right? yes\nAnswer: yes"

    with _server(asked, say) as server:
        answering = server.fault

        def fault(server: Server, call: Call, seen: int) -> Any:
            if not (given := re.search(r'<answer id="(\w+)">(.*)</answer id="\1">', call.text, re.DOTALL)):
                return answering(server, call, seen)
            assert call.text.rpartition(given[0])[2].count("yes") == 0
            said = f"{given[2]}\n{'yes' if given[2].startswith('refund') else 'no'}"
            choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
            return ok({"model": "stub-1", "choices": [choice], "usage": {"prompt_tokens": 20, "completion_tokens": 5}})

        server.fault = fault
        words = ("--llm", "openai:stub", "--base-url", server.url, "-w", where, "--json")
        llm = (*words, "--metric", "judge", "--read", "text")
        evaluated = run("evaluate", "--methods", "zero", *llm)
        assert evaluated.code == 0, evaluated.err
        tuned = run("tune", "-m", "bm25", "-k", 2, *llm)
        assert tuned.code == 0, tuned.err
    assert evaluated.json["methods"]["zero"]["accuracy"] == pytest.approx(1 / 3)
    assert tuned.json["candidates"][0]["accuracy"] == pytest.approx(1 / 3)
