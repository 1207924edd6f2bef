"""How many faults planted in real outputs `check` finds, by kind, and how many sound rows it names.

    python benchmarks/check_outputs.py DATA GSM8K [--rows 2000] [--seeds 3]

DATA holds pools in folders, as `train.jsonl` with input and output (banking77, nq_open); GSM8K is the file of its
training split with question and answer. Outputs are the data's own (rationales; answers), or made from it: an object
and a call of each labelled message, the numbers and names of each question as entities, the labels that the words of
a message stand for as a set. A share of `SHARE` of the rows gets each fault. "Named" are findings of any severity,
"sure" those that are not for review only. Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from icl_curate.engine.checks.outputs import levels, output_faults
from icl_curate.engine.checks.posterior import fault_ratios, fit
from icl_curate.engine.checks.rationale import statements
from icl_curate.engine.checks.results import Fault
from icl_curate.engine.evaluate.statistics import wilson
from icl_curate.engine.pool.records import Demonstration, Task

SHARE = 0.01
"""Share of the rows that get each fault."""

Row = tuple[str, str]
"""An input and its output."""

Spoil = Callable[[str, str, random.Random], "str | None"]
"""Another output for an input with its output; None if it cannot have this fault."""

FOREIGN = (
    "Zuerst werden die beiden Summen berechnet und danach voneinander abgezogen, das Ergebnis steht am Schluss.",
    "Man teilt die Anzahl durch die Hälfte und erhält den gesuchten Wert, der noch verdoppelt werden muss.",
    "Il faut additionner les deux nombres, puis retrancher la moitié pour obtenir la réponse demandée ici.",
    "Primero se suman las dos cantidades y luego se divide el resultado entre el número de personas.",
)
ITEMS = {"card": "card", "cash": "cash", "transfer": "transfer", "account": "account", "pin": "pin", "fee": "fee",
         "charged": "fee", "exchange": "exchange", "currency": "exchange", "top": "top-up", "pending": "status",
         "refund": "refund", "identity": "identity", "verify": "identity", "app": "app", "atm": "cash"}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("gsm8k", type=Path)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    print("| outputs | fault | planted | named | sure | likely to hurt | corrected rightly | sound rows |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (make, spoils) in POOLS.items():
        rows = make(given.data, given.gsm8k)
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for seed in range(given.seeds):
            draw = random.Random(seed)
            sample = draw.sample(rows, min(given.rows, len(rows)))
            judge(sample, {}, counts)
            planted = plant(sample, spoils, draw)
            judge([(row[0], planted[i][1]) if i in planted else row for i, row in enumerate(sample)], planted, counts,
                  [row[1] for row in sample])  # fmt: skip
        tell(name, counts)


def plant(rows: Sequence[Row], spoils: Mapping[str, Spoil], draw: random.Random) -> dict[int, tuple[str, str]]:
    """By row the fault it gets, and its new output."""
    planted: dict[int, tuple[str, str]] = {}
    order = draw.sample(range(len(rows)), len(rows))
    for fault, spoil in spoils.items():
        wanted = len(planted) + max(1, round(SHARE * len(rows)))
        while len(planted) < wanted and order:
            i = order.pop()
            if (spoiled := spoil(*rows[i], draw)) not in (None, rows[i][1]):
                planted[i] = fault, str(spoiled)
    return planted


def judge(
    rows: Sequence[Row],
    planted: Mapping[int, tuple[str, str]],
    counts: dict[str, Counter[str]],
    right: Sequence[str] = (),
) -> None:
    """Count what is found: by planted fault, and among sound rows with (``sound``) and without planted ones
    (``clean``)."""
    pool = [Demonstration(i, str(i), text, output, "s") for i, (text, output) in enumerate(rows)]
    found = output_faults(pool, Task("open", one_line=False))
    bad = fit(np.zeros(len(pool), np.int64), fault_ratios(levels(found, len(pool)))).bad
    faults: dict[int, list[Fault]] = defaultdict(list)
    for fault in found:
        faults[fault.place].append(fault)
    for i in range(len(pool)):
        one = counts[planted[i][0] if i in planted else "sound" if planted else "clean"]
        one["rows"] += 1
        one["named"] += bool(faults[i])
        one["sure"] += any(fault.sure for fault in faults[i])
        one["likely"] += bool(bad[i] >= 0.5)
        if planted:
            corrected = [fault.corrected for fault in faults[i] if fault.corrected]
            one["corrected"] += bool(corrected)
            one["rightly"] += bool(corrected) and same(corrected[0], right[i])


def same(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return one == other


def tell(name: str, counts: Mapping[str, Counter[str]]) -> None:
    for fault, of in counts.items():
        if fault in ("sound", "clean"):
            continue
        figures = [interval(of[key], of["rows"]) for key in ("named", "sure", "likely")]
        corrected = f"{of['rightly']} of {of['corrected']}" if of["corrected"] else "–"
        print(f"| {name} | {fault} | {of['rows']} | {' | '.join(figures)} | {corrected} | |")
    for fault, about in (("sound", "none, in the same pools"), ("clean", "none, in pools without faults")):
        of = counts[fault]
        shares = ", ".join(f"{of[key] / of['rows']:.2%}" for key in ("named", "sure", "likely"))
        print(f"| {name} | {about} | {of['rows']:,} | | | | | {shares} |")


def interval(hits: int, count: int) -> str:
    low, high = wilson(hits, count)
    return f"{hits / count:.2f} ({low:.2f}–{high:.2f})"


# Pools.


def lines(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def rationales(data: Path, gsm8k: Path) -> list[Row]:
    return [(row["question"], row["answer"].strip()) for row in lines(gsm8k)]


def answers(data: Path, gsm8k: Path) -> list[Row]:
    return [(row["input"], row["output"]) for row in lines(data / "nq_open" / "train.jsonl")]


def messages(data: Path) -> list[dict[str, Any]]:
    return [*lines(data / "banking77" / "train.jsonl")]


def objects(data: Path, gsm8k: Path) -> list[Row]:
    made = []
    for row in messages(data):
        words = row["input"].split()
        told = {"intent": row["output"], "words": len(words), "question": "?" in row["input"], "first": words[0]}
        made.append(
            (row["input"], json.dumps(told | ({"amount": n[0]} if (n := NUMBER.findall(row["input"])) else {})))
        )
    return made


NUMBER, NAME = re.compile(r"\d+"), re.compile(r"(?<=[a-z,] )[A-Z][a-z]+(?: [A-Z][a-z]+)*|\b\d[\d,.]*\b")


def calls(data: Path, gsm8k: Path) -> list[Row]:
    made = []
    for row in messages(data):
        tool, _, rest = row["output"].partition("_")
        arguments = {"topic": rest or "any", "text": row["input"][:40], "urgent": "!" in row["input"]}
        made.append((row["input"], json.dumps([{"name": f"ask_{tool.lower()}", "arguments": arguments}])))
    return made


def entities(data: Path, gsm8k: Path) -> list[Row]:
    made = []
    for row in lines(gsm8k):
        text = row["question"]
        spans = [
            {"text": m[0], "type": "number" if m[0][0].isdigit() else "name", "start": m.start(), "end": m.end()}
            for m in NAME.finditer(text)
        ]
        if spans:
            made.append((text, json.dumps(spans)))
    return made


def sets(data: Path, gsm8k: Path) -> list[Row]:
    made = []
    for row in messages(data):
        own = dict.fromkeys(ITEMS[word] for word in re.findall("[a-z]+", row["input"].lower()) if word in ITEMS)
        if own:
            made.append((row["input"], ", ".join(own)))
    return made


# Faults.


def cut_off(text: str, output: str, draw: random.Random) -> str:
    return output[: max(3, len(output) * 2 // 3)]


def fenced(text: str, output: str, draw: random.Random) -> str:
    return f"Here is the JSON:\n```json\n{output}\n```"


def changed(change: Callable[[Any, str, random.Random], Any]) -> Spoil:
    """A change of the first object of a JSON output; what it returns takes its place unless it is None."""

    def spoil(text: str, output: str, draw: random.Random) -> str | None:
        value = json.loads(output)
        part = draw.choice(value) if isinstance(value, list) else value
        return json.dumps(value) if change(part, text, draw) else None

    return spoil


def renamed(part: Any, old: str, new: str) -> bool:
    part[new] = part.pop(old)
    return True


def typo(text: str, draw: random.Random) -> str:
    at = draw.randrange(1, len(text) - 1)
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]


def put(part: Any, key: str, value: Any) -> bool:
    part[key] = value
    return True


def moved(part: Any, text: str, draw: random.Random) -> bool:
    shift = draw.choice((-3, -2, -1, 1, 2, 3))
    return put(part, "start", part["start"] + shift) and put(part, "end", part["end"] + shift)


def wrong_type(part: Any, text: str, draw: random.Random) -> bool:
    return put(part, "type", "name" if part["type"] == "number" else "number")


def miscalculated(text: str, output: str, draw: random.Random) -> str | None:
    """One result is wrong, at every place where it is written in that step; the rest stays."""
    stated = statements(output)
    if not stated:
        return None
    one = draw.choice(stated)
    wrong = str(int(one.written) + draw.choice((-3, -2, -1, 1, 2, 10)))
    step = output.rfind("\n", 0, one.start) + 1, (output + "\n").find("\n", one.start)
    line = re.sub(rf"(?<==)(\s*\$?){re.escape(one.right)}(?![\d.])|(?<=>>){re.escape(one.right)}(?![\d.])",
                  lambda match: f"{match[1] or ''}{wrong}", output[step[0] : step[1]])  # fmt: skip
    return output[: step[0]] + line + output[step[1] :]


def other_answer(text: str, output: str, draw: random.Random) -> str:
    head, mark, answer = output.rpartition("#### ")
    number = int(float(answer.replace(",", "")))
    return f"{head}{mark}{number + draw.choice((-7, -1, 1, 3, 12))}"


def shortened(text: str, output: str, draw: random.Random) -> str:
    return output.rpartition("#### ")[2] if "####" in output else output[:2]


def other_script(text: str, output: str, draw: random.Random) -> str | None:
    table = str.maketrans("abcdeghiklmnoprstuvz", "абцдегхиклмнопрстувз")
    return translated if (translated := output.lower().translate(table)) != output and len(output) > 3 else None


def in_other_words(text: str, output: str, draw: random.Random) -> str:
    return " ".join(draw.sample(FOREIGN, 2)) + "\n#### " + output.rpartition("#### ")[2]


POOLS: Mapping[str, tuple[Callable[[Path, Path], list[Row]], Mapping[str, Spoil]]] = {
    "JSON objects": (
        objects,
        {
            "cut off": cut_off,
            "in a fence": fenced,
            "field missing": changed(
                lambda part, text, draw: bool(part.pop(draw.choice(["intent", "words", "first"])))
            ),
            "field misspelt": changed(lambda part, text, draw: renamed(part, "question", "queston")),
            "field unknown": changed(lambda part, text, draw: put(part, f"note{draw.randrange(9)}", "checked")),
            "number as text": changed(lambda part, text, draw: put(part, "words", str(part["words"]))),
            "value misspelt": changed(lambda part, text, draw: put(part, "intent", typo(part["intent"], draw))),
            "value unknown": changed(lambda part, text, draw: put(part, "intent", f"other{draw.randrange(99)}")),
        },
    ),
    "calls": (
        calls,
        {
            "tool misspelt": changed(lambda part, text, draw: put(part, "name", typo(part["name"], draw))),
            "argument missing": changed(lambda part, text, draw: part["arguments"].pop("urgent") is not None),
            "argument of another type": changed(lambda part, text, draw: put(part["arguments"], "urgent", "no")),
        },
    ),
    "entities": (
        entities,
        {
            "span moved": changed(moved),
            "text not in the input": changed(lambda part, text, draw: put(part, "text", f"{part['text']}q")),
            "case of the text": changed(lambda part, text, draw: put(part, "text", part["text"].upper())),
            "type of another": changed(wrong_type),
        },
    ),
    "sets of labels": (
        sets,
        {
            "label misspelt": lambda text, output, draw: ", ".join(
                [*output.split(", ")[:-1], typo(output.split(", ")[-1], draw)]
            ),
            "label unknown": lambda text, output, draw: f"{output}, misc{draw.randrange(99)}",
        },
    ),
    "rationales (GSM8K)": (
        rationales,
        {
            "a result wrong": miscalculated,
            "the answer wrong": other_answer,
            "answer alone": shortened,
            "another script": other_script,
            "another language": in_other_words,
        },
    ),
    "short answers (NQ)": (
        answers,
        {
            "another script": other_script,
            "a long text": lambda text, output, draw: f"{output}. " + " ".join(FOREIGN),
            "with 'Answer:'": lambda text, output, draw: f"Answer: {output}",
        },
    ),
}

if __name__ == "__main__":
    main()
