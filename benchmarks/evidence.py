"""Writes the tables of docs/evidence.md that say what a real LLM did: `make evidence`.

    python benchmarks/evidence.py              # replays the recorded answers and writes the tables
    python benchmarks/evidence.py --check      # the same, but only says whether the tables are the page's
    python benchmarks/evidence.py --live       # asks the LLM again: its tables must be the page's
    python benchmarks/evidence.py --record     # asks the LLM and writes the recordings, too

The LLM is SmolLM2-135M-Instruct in float32 (``--llm smollm2``); the recordings lie in docs/evidence. Every figure comes
from a command of the tool, run as a user would run it on `sample_data`, in workspaces that are thrown away.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from icl_curate.engine.evaluate.statistics import Comparison, compare
from icl_curate.engine.store.runs import outcomes
from icl_curate.engine.store.workspace import Workspace as Store

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evidence.md"
RECORDINGS = ROOT / "docs" / "evidence"
SAMPLE = ROOT / "sample_data"
LLM = "smollm2"

WORST = ("crowd_batch", "archive_2019", "community_forum")
"""The sources with the lowest reliability in the table of sources."""

METHODS = ("zero", "random", "bm25", "dense", "dpp")
TRAINED = ("set-bsr", "ranker", "topick")
"""Those that a ranker or topics are trained for, and Set-BSR, which compares tokens."""

AS_PRINTED = ("--rate", 0.01, "--epochs", 4, "--sees", "input", "--no-sources", "--credit", "reward")
"""The ranker as in the paper: it sees inputs, and each demonstration has the reward of its whole prompt."""

FROM_TRIALS = ("--candidates", "dense", "--preselect", 30, "--temperature", 0.1, "--trials", 40, "--epochs", 0)
"""The ranker from the answers of `train sources`, which costs no request."""

VARIANTS = ("topick-union", "topick-alone", "topick-no-knowledge", "topick-released")


class Workspace:
    """A separate workspace, and the commands run on it."""

    def __init__(self, folder: Path, name: str, spec: str, dtype: str = "float32") -> None:
        self.folder, self.name, self.spec, self.dtype = folder / name, name, spec, dtype

    def tried(self, *arguments: object) -> tuple[int, dict[str, Any]]:
        """A command's exit code and its JSON object, which tells the error if there is one."""
        command = [sys.executable, "-m", "icl_curate.cli", *map(str, arguments), "-w", str(self.folder), "--json"]
        environment = os.environ | {"ICL_CURATE_DTYPE": self.dtype}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        return done.returncode, json.loads(done.stdout or done.stderr.strip().splitlines()[-1])

    def run(self, *arguments: object) -> dict[str, Any]:
        """A command's JSON object; without the LLM if the command does not take one."""
        code, found = self.tried(*arguments)
        if code:
            sys.exit(f"{' '.join(map(str, arguments))}\n{found}")
        return found

    def index(self, world: str) -> None:
        base = SAMPLE / world
        splits = ("--validation", base / "validation.jsonl", "--test", base / "test.jsonl")
        self.run("index", *sorted((base / "pool").glob("*.jsonl")), *splits)

    def ask(self, *arguments: object) -> dict[str, Any]:
        return self.run(*arguments, "--llm", self.spec)


def support(workspace: Workspace) -> dict[str, str]:
    """The tables of the sample pool."""
    return untrained(workspace) | trained(workspace)


def untrained(workspace: Workspace) -> dict[str, str]:
    """Methods on the pool as it came and without its worst sources, what `train sources` sees, and ways to curate."""
    workspace.index("support")
    restore(workspace)  # after a run that was stopped
    asked = workspace.ask("train", "sources", "--depth", 10, "-n", 40)
    listed = workspace.run("sources")
    found = with_worst_and_without(workspace, METHODS)
    ways = curated(workspace, wrong_rows(), ("bm25", "dense"), 60, 5, (60, 200))
    truth = json.loads((SAMPLE / "support" / "truth.json").read_text())["sources"]
    sources = [
        [
            row["source"],
            f"{truth[row['source']]['wrong_share']:.0%}",
            f"{row['reliability']:.3f}",
            f"{row['weight']:.3f}",
            f"{row['hits']:,}",
        ]
        for row in sorted(listed["sources"], key=lambda row: -row["reliability"])
    ]
    return {
        "methods": methods_table(found, asked["calls"]),
        "curation": ways,
        "sources": table(["source", "wrong labels", "reliability", "weight", "answers"], sources),
    }


def wrong_rows() -> list[str]:
    """Ids of the rows of the sample pool whose output is wrong."""
    rows = [json.loads(line) for line in (SAMPLE / "support" / "truth_rows.jsonl").read_text().splitlines()]
    return [row["id"] for row in rows if not row["correct"]]


def trained(workspace: Workspace) -> dict[str, str]:
    """The ranker and the topics, on the workspace that `untrained` leaves, and what their papers claim.

    They are trained last: what they learn is evidence about rows, too, and the decisions before are made without it."""
    ranker = workspace.ask("train", "ranker", "-n", 60, *AS_PRINTED)
    topics = workspace.ask("train", "topics", "--no-llm-topics", "--questions", 300)
    printed = with_worst_and_without(workspace, TRAINED)
    workspace.ask("train", "ranker", "-n", 60, *FROM_TRIALS)
    from_trials = with_worst_and_without(workspace, ("ranker-untrained", "ranker"))
    found = [
        {
            "set-bsr": first["set-bsr"],
            "ranker, as printed": first["ranker"],
            "ranker, its start": second["ranker-untrained"],
            "ranker, from trials": second["ranker"],
            "topick": first["topick"],
        }
        for first, second in zip(printed, from_trials, strict=True)
    ]
    found[0] |= workspace.ask("evaluate", "-m", ",".join(VARIANTS), "-n", 60, "--seeds", 1)["methods"]
    return {
        "trained": methods_table(found, ranker["calls"] + topics["calls"]),
        "ranker-claims": claims(
            [
                ("above dense retrieval", "+2.97 points over the best baseline", against(workspace, "ranker", "dense")),
                ("above its own start", "–", against(workspace, "ranker", "ranker-untrained")),
            ]
        ),
        "topics-claims": claims(
            [
                ("above Set-BSR", "+1.59 %", against(workspace, "topick", "set-bsr")),
                ("above dense retrieval", "higher on each set", against(workspace, "topick", "dense")),
                ("joint coverage helps", "the largest loss without it", against(workspace, "topick", "topick-alone")),
                ("knowledge helps", "a loss without it", against(workspace, "topick", "topick-no-knowledge")),
            ]
        ),
    }


def methods_table(found: Sequence[Mapping[str, Any]], training: int) -> str:
    """Accuracy by method on the pool as it came and without its worst sources. ``training``: requests of training."""
    rows = [
        [name, *(cell for run in found for cell in (accuracy(run[name]) if name in run else ("–", "–")))]
        for name in found[0]
    ]
    calls = training + sum(row["calls"] for run in found for row in run.values())
    heads = ["method", "as it came", "95 %", "without the three worst sources", "95 %"]
    return table(heads, rows, f"{calls:,} requests, those of training included")


def with_worst_and_without(workspace: Workspace, methods: Sequence[str]) -> list[dict[str, Any]]:
    """The figures of methods on the pool as it came and without its worst sources; the pool stays as it came."""
    names = ("-m", ",".join(methods), "-n", 60, "--seeds", 1)
    before = workspace.ask("evaluate", *names)["methods"]
    for source in WORST:
        workspace.run("prune", "--source", source)
    after = workspace.ask("evaluate", *names)["methods"]
    restore(workspace)
    return [before, after]


def against(workspace: Workspace, method: str, other: str) -> Comparison:
    """The paired difference of two methods on the pool as it came."""
    done = workspace.ask("evaluate", "-m", f"{other},{method}", "-n", 60, "--seeds", 1)
    found = outcomes(Store.open(workspace.folder), done["run"], method, other)
    return compare(
        np.array([each.right for each in found], float), np.array([each.other_right for each in found], float)
    )


def claims(rows: Sequence[tuple[str, str, Comparison]]) -> str:
    """What a paper claims, by how much, and the paired difference here; it holds if the difference is beyond noise."""
    told = []
    for claim, paper, here in rows:
        holds = "yes" if here.low > 0 else "no, the reverse" if here.high < 0 else "not beyond noise"
        told.append([claim, paper, f"{here.difference:+.3f}", f"{here.low:+.2f} to {here.high:+.2f}", holds])
    return table(["claim", "in the paper", "here", "95 %", "holds"], told)


def facts(workspace: Workspace) -> dict[str, str]:
    """Calibration rounds over ten documents."""
    workspace.index("facts")
    done = workspace.ask("calibrate", "--split", "validation", "-n", 24, "--rounds", 3)
    return {"rounds": rounds_table(done)}


def curated(
    workspace: Workspace,
    wrong: Sequence[str],
    methods: Sequence[str],
    queries: int,
    k: int,
    limits: Sequence[int],
    kind: str = "label",
) -> str:
    """`gains` of each way of curating. ``wrong``: ids of the rows with a wrong output, which no user knows; ``limits``:
    how many validation queries to tune on; ``kind``: the one of `check` that finds wrong outputs."""
    tune = ("prune", "--tune", "-m", "dense", "-k", k, "--llm", workspace.spec)
    ways: dict[str, tuple[object, ...]] = {
        "as it came": (),
        f"`check --accept {kind}`": ("check", "--accept", kind),
        **({"`check --relabel`": ("check", "--relabel")} if kind == "label" else {}),
        "`prune --tune --by vote`": ("prune", "--tune", "--by", "vote", "-k", k),
        "`prune --suspects`": ("prune", "--suspects"),
        **{f"`prune --tune -n {limit}`": (*tune, "-n", limit) for limit in limits},
        "only true rows": only(wrong),
    }
    return gains(workspace, ways, methods, queries, k)


def only(wrong: Sequence[str]) -> tuple[object, ...]:
    """The command that prunes these rows."""
    return ("prune", *(f"--demo={name}" for name in wrong))


def gains(
    workspace: Workspace, ways: Mapping[str, tuple[object, ...]], methods: Sequence[str], queries: int, k: int
) -> str:
    """What each way, a command, gains on the first test queries, and how much of the gap to the pool's right rows it
    closes. Sources have been trained before."""
    shown = ("-m", ",".join(methods), "-n", queries, "--seeds", 1, "-k", k)
    restore(workspace)
    figures, calls, rows = {}, {}, {}
    for name, words in ways.items():
        done = workspace.run(*words) if words else {}
        calls[name] = (done.get("confirmed") or {}).get("calls")
        rows[name] = workspace.run("status")["active"]
        figures[name] = workspace.ask("evaluate", *shown)["methods"]
        restore(workspace)
    ends = [figures[name][methods[-1]]["accuracy"] for name in ("as it came", "only true rows")]
    told = [
        [
            name,
            f"{rows[name]:,}",
            *(cell for method in methods for cell in accuracy(found[method])),
            closed(found[methods[-1]]["accuracy"], *ends),
            calls[name] or "–",
        ]
        for name, found in figures.items()
    ]
    heads = ["pool", "rows", *(head for method in methods for head in (method, "95 %")), "gap closed", "requests"]
    return table(heads, told)


def closed(reached: float, dirty: float, clean: float) -> str:
    """The share of the gap between the dirty and the clean pool that is closed."""
    return f"{(reached - dirty) / (clean - dirty):.0%}" if clean > dirty else "–"


def restore(workspace: Workspace) -> None:
    """Undo all decisions, those of a run that was stopped as well."""
    for row in workspace.run("history", "-n", 1000)["history"]:
        if row["action"] != "undo" and not row["undone"]:
            workspace.run("prune", "--undo")


PARTS: Mapping[str, Callable[[Workspace], dict[str, str]]] = {"support": support, "facts": facts}


def rounds_table(done: Mapping[str, Any]) -> str:
    """What the rounds of a calibration came to."""
    arm = done["arms"]["full"]
    rounds = [
        [
            row["round"],
            f"{row['accuracy']:.3f}",
            interval(row["ci95"]),
            f"{row['f1']:.3f}",
            interval(row["f1_ci95"]),
            f"{row['final_f1']:.3f}",
            f"{row['uncertainty']:.3f}",
        ]
        for row in arm["rounds"]
    ]
    relevance = done["relevance"]
    note = (
        f"uncertainty by {done['estimator']}; scores of documents tell relevant ones from others with AUROC "
        f"{relevance['auroc']:.2f}; {done['unusable']:,} of {done['calls']:,} replies answer nothing"
    )
    heads = ["round", "exact match", "95 %", "F1", "95 %", "F1 if it ended here", "mean uncertainty"]
    return table(heads, rounds, note)


def accuracy(figures: Mapping[str, Any]) -> tuple[str, str]:
    return f"{figures['accuracy']:.3f}", interval(figures["ci95"])


def interval(pair: Sequence[float]) -> str:
    return f"{pair[0]:.2f}–{pair[1]:.2f}"


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([*lines, *([f"\n{note}."] if note else [])])


def written(page: str, tables: Mapping[str, str]) -> str:
    """The page with its tables between their marks."""
    for name, table in tables.items():
        start, end = f"<!-- evidence: {name} -->", f"<!-- end: {name} -->"
        if start not in page or end not in page:
            sys.exit(f"{PAGE.name} has no place for the table '{name}': {start} … {end}")
        head, rest = page.split(start, 1)
        page = f"{head}{start}\n{table}\n{end}{rest.split(end, 1)[1]}"
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--check", action="store_true", help="write nothing; exit with 1 where the page differs")
    way.add_argument("--live", action="store_true", help="ask the LLM; exit with 1 where the page differs")
    way.add_argument("--record", action="store_true", help="ask the LLM, write recordings and page")
    parser.add_argument("--only", choices=list(PARTS), help="one part of the tables")
    chosen = parser.parse_args()
    tables: dict[str, str] = {}
    live = chosen.live or chosen.record
    with tempfile.TemporaryDirectory() as temporary:
        # answers of an LLM take minutes, so they are stored: a stopped run continues from them
        folder = ROOT / "build" / "evidence" if live else Path(temporary)
        for name, part in PARTS.items():
            if chosen.only not in (None, name):
                continue
            recording = RECORDINGS / f"{name}.parquet"
            workspace = Workspace(folder, name, LLM if live else f"replay:{recording}")
            tables |= part(workspace)
            if chosen.record:
                recording.parent.mkdir(exist_ok=True)
                workspace.run("llm", "record", recording, "--llm", LLM)
    for table in tables.values():
        print(table, end="\n\n")
    page = PAGE.read_text(encoding="utf-8")
    new = written(page, tables)
    if chosen.check or chosen.live:
        sys.exit("the tables differ from those of docs/evidence.md" if new != page else 0)
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
