"""A newcomer's session in `review`: from a folder with files to an exported pool, by the keys that the screen shows.

    python benchmarks/stranger.py [--screens]

The files are made of the sample pool: a CSV with spaces in its name, chats with three wrong labels of ten and repeats,
questions that are partly in the pool. Each key is looked up on the screen before it is pressed; where it does not stand
there, the log says `guessed`. Each line has the seconds until the screen changes, and until it stays as it is. The LLM
is `offline`. Fails on a traceback, on a count on Overview that `status --json` does not tell, and on a job that starts
before its price was drawn. ``--screens`` prints the screens whole.
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from icl_curate.cli import app as command_line
from icl_curate.engine.store.workspace import DEFAULT
from icl_curate.tui.app import ReviewApp
from icl_curate.tui.dialogs.dialog import Confirm
from textual.screen import ModalScreen
from typer.main import get_command

DATA = Path(__file__).resolve().parent.parent / "sample_data" / "support"
QUIET, LONG, LONGEST = 0.4, 1.0, 300.0
"""Seconds without a change after which the screen stays, of a wait that is named at the end, and of one given up."""
SHOWN = {"enter": "⏎", "escape": "esc", "down": "↓"}  # as the screen writes keys


def make_files(folder: Path) -> None:
    def rows_of(name: str) -> list[dict[str, str]]:
        return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]

    def write_csv(name: str, *rows: tuple[object, ...]) -> None:
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)

    draw = random.Random(0)
    good = draw.sample(rows_of("pool/helpdesk_team") + rows_of("pool/partner_desk"), 390)
    asked, labels = rows_of("test")[:60], sorted({row["output"] for row in good})
    tickets = [(i, row["input"], row["output"], "2024-03-01") for i, row in enumerate(good[:240])]
    head = "Ticket #", "Customer Message", "Intent Label", "Created At"
    write_csv("zendesk export (final) v2.csv", head, *tickets)
    chats = [{**row, "output": draw.choice(labels)} if i % 10 < 3 else row for i, row in enumerate(good[240:390])]
    turns = [
        {"messages": [{"role": "user", "content": row["input"]}, {"role": "assistant", "content": row["output"]}]}
        for row in (*chats, *chats[:10], *asked[:2])
    ]
    (folder / "chat_logs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in turns), encoding="utf-8")
    write_csv("questions.csv", ("question", "answer"), *((row["input"], row["output"]) for row in asked))


class Newcomer:
    """Presses the keys, and logs what they do."""

    def __init__(self, folder: Path, screens: bool) -> None:
        self.app = ReviewApp(folder, commands=get_command(command_line), tour=True)
        self.screens, self.keys = screens, 0
        self.waits, self.guesses, self.faults = list[str](), list[str](), list[str]()

    @property
    def text(self) -> str:
        """The screen."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    def shows(self, key: str) -> bool:
        """Whether the key stands in the strip or the line of keys, or the text tells to press it."""
        word, lines = re.escape(SHOWN.get(key, key)), self.text.split("\n")
        where = " ".join((lines[0], *lines[-2:])) if len(key) == 1 else self.text  # a letter is also a word
        return bool(re.search(rf"(?<!\S){word}(?!\S)", where) or re.search(rf"\b[Pp]ress {word}(?!\w)", self.text))

    async def press(self, key: str, why: str, until: Callable[[], bool] = lambda: True) -> None:
        """Press a key, and wait ``until`` something holds and the screen stays as it is."""
        jobs = lambda: len([*self.app.folder.glob("jobs/*/job.json")])  # noqa: E731
        guess, before, begun = not self.shows(key), self.text, jobs()
        self.keys += 1
        self.app.simulate_key(key)
        times = await self.settle(until, before)
        if jobs() > begun and "y start" not in before:
            self.faults.append(f"{key} started a job before its price was drawn")
        self.log(key, why, *times, guess)

    async def settle(self, until: Callable[[], bool], text: str = "") -> tuple[float, float]:
        """Seconds until the screen is not ``text``, and until its last change or ``until`` held."""
        began = last = time.monotonic()
        first, held = 0.0, False
        while (now := time.monotonic()) - began < LONGEST and not self.app._exception:
            if self.text != text:
                text, last = self.text, now
                first = first or now - began
            if not held:
                held, last = until(), now
            elif now - last > QUIET:
                asked = isinstance(self.app.screen, Confirm)  # a decision waits for its answer
                if all(worker.is_finished or (asked and worker.group == "decide") for worker in self.app.workers):
                    return first, last - began
            await asyncio.sleep(0.03)
        self.faults.append(f"nothing came within {LONGEST:g} s:\n{text}")
        return first, last - began

    def log(self, key: str, why: str, first: float, last: float, guess: bool) -> None:
        self.guesses += [f"{key}: {why}"] * guess
        self.waits += [f"{last:5.2f} s  {why} ({key}), first sign after {first:.2f} s"] * (last > LONG)
        print(f"{key:<12} {why:<50} {first:5.2f} {last:5.2f} s{'  guessed' * guess}", flush=True)
        said = [line.strip(" │▌") for line in self.text.split("\n")[1:] if re.search(r"\w", line)]
        print(self.text if self.screens else "\n".join(f"    {line}" for line in said[:2]), flush=True)

    async def run_job(self, number: int, why: str) -> None:
        """Start the job whose price is shown, wait for its end, and leave the list of jobs."""
        ended = lambda: re.search(rf"\b{number} (done|failed|cancelled)", self.text)  # noqa: E731
        await self.press("y", f"{why}: until job {number} has ended", lambda: bool(ended()))
        self.faults += [f"job {number} failed"] * (f"{number} done" not in self.text)
        await self.press("escape", "leave the list of jobs")

    async def decide(self, key: str, why: str) -> None:
        """A key that decides on rows, and the answer to each question that follows."""
        await self.press(key, why)
        while isinstance(self.app.screen, ModalScreen) and not self.faults:
            await self.press("y" if isinstance(self.app.screen, Confirm) else "enter", f"{why}: answer")

    def compare(self) -> float:
        """Accuracy by `status --json`; each of its counts that Overview does not show is a fault."""
        told = json.loads(subprocess.check_output([sys.executable, "-m", "icl_curate", "status", "--json"]))
        counts = {"active": f"{told['active']:,} of {told['pool']:,} ", "queries": f"{told['validation']:,} validation"}
        counts |= {name: f"{told[f'{name}_open']:,} " for name in ("leaks", "suspects")}
        counts |= {"repeats": f"{sum(told['duplicates_open'].values()):,} ", "decisions": f"{told['decisions']:,}"}
        wrong = [f"{name} {count}" for name, count in counts.items() if not re.search(rf"\b{name} +{count}", self.text)]
        self.faults += [f"Overview does not show {one}" for one in wrong]
        return float(told["measured"]["accuracy"]["value"]) if told["measured"] else 0.0


async def session(newcomer: Newcomer) -> str:
    """From the empty folder to the file; returns what was seen and gained."""
    app, press, priced = newcomer.app, newcomer.press, lambda: "y start" in newcomer.text
    async with app.run_test(size=(80, 24)):
        times = await newcomer.settle(lambda: bool(app.tabs) and app.tab is not None)
        words = len(re.findall(r"[^\W\d_]{2,}", newcomer.text))
        newcomer.log("", "the first screen", *times, False)
        await press("enter", "choose files and columns")
        await press("enter", "the price of indexing", priced)
        await newcomer.run_job(1, "index")
        newcomer.compare()
        await press("enter", "the next step: the price of measuring", priced)
        await newcomer.run_job(2, "measure before")
        before = newcomer.compare()
        await press("2", "Problems")
        await press("a", "mark all suspects")
        await newcomer.decide("e", "correct them as suggested")
        for name in ("repeats", "leaks"):
            await press("tab", name)
            await newcomer.decide("X", f"decide on {name}")
        for place, key, why in (("3", "w", "weigh sources"), ("4", "n", "measure after"), ("5", "enter", "export")):
            await press(place, f"the place to {why}")
            await press(key, f"the price to {why}", priced)
            await newcomer.run_job(int(place), why)
        await press("1", "Overview")
        return f"{words} words at first, {newcomer.keys} keys, accuracy {before:.3f} → {newcomer.compare():.3f}"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_files(Path(folder))
        newcomer = Newcomer(Path(DEFAULT), "--screens" in sys.argv)
        print(asyncio.run(session(newcomer)))
        print("written:", len(Path("curated.jsonl").read_text(encoding="utf-8").splitlines()), "rows")
    for name in ("waits", "guesses", "faults"):
        print(f"{name}:", *getattr(newcomer, name), sep="\n  ")
    return bool(newcomer.faults)


if __name__ == "__main__":
    sys.exit(main())
