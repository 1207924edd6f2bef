"""Writes the tables of docs/evidence/replayed.md that say what a real LLM did: `make evidence`.

    python benchmarks/evidence.py              # replays the recorded answers and writes the tables
    python benchmarks/evidence.py --check      # the same, but only says whether the tables are the page's
    python benchmarks/evidence.py --live       # asks the LLM again: its tables must be the page's
    python benchmarks/evidence.py --record     # asks the LLM what was not recorded before, writes recordings and page

What training comes to, and which of two near ties is chosen, depends on the last bits, and so on the processor. So a
replay uses the vectors that were encoded and the models that were trained when its answers were recorded
(docs/evidence/models). It encodes and trains, too, and compares (`NEAR`, `TOLERANCE`). Prompts without a recorded
answer are counted: beyond `SHARE` a replay fails, below it a figure may differ by what they can change.

The LLM is SmolLM2-135M-Instruct in float32 (``--llm smollm2``); the recordings lie in docs/evidence. What other
ones make of the sample pool is recorded by ``--record --only NAME --llm hf:FILE.gguf``. Every figure comes from
a command of the tool, run as a user would run it on `sample_data`, in workspaces that are thrown away.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from icl_curate.engine.evaluate.statistics import Comparison, compare
from icl_curate.engine.papers.topics import model_file as topic_files
from icl_curate.engine.retrieval.checked import seal_model
from icl_curate.engine.retrieval.vectors import HEAD, MATRIX
from icl_curate.engine.store import calls, runs
from icl_curate.engine.store.runs import outcomes
from icl_curate.engine.store.workspace import Workspace as Store
from icl_curate.engine.trials import ranker as ranker_files

ROOT = Path(__file__).resolve().parents[1]
RECORDINGS = ROOT / "docs" / "evidence"
PAGE = RECORDINGS / "replayed.md"
SAMPLE = ROOT / "sample_data"
MODELS = RECORDINGS / "models"
LLM = "smollm2"
QUERIES = 60

SHARE = 0.01
"""Prompts of a replay without a recorded answer at which it fails."""
TOLERANCE = 0.01
"""By what a training's curve may differ from the recorded one, as a share of its largest value: between SSE and AVX2 it
was 6·10⁻⁵ for the topics and 4·10⁻⁷ for the ranker from trials."""

NEAR = 0.999
"""The least cosine of a vector to the recorded one: on some processors texts are encoded in bfloat16."""

WORST = ("crowd_batch", "archive_2019", "community_forum")
"""The sources with the lowest reliability in the table of sources."""

METHODS = ("zero", "random", "bm25", "dense", "dpp")
TRAINED = ("set-bsr", "ranker", "topick")
"""Those that a ranker or topics are trained for, and Set-BSR, which compares tokens."""

INPUTS_ALONE = (
    "--candidates", "bm25", "--preselect", 20, "--temperature", 1, "--threshold",
    "--rate", 0.01, "--epochs", 4, "--sees", "input", "--no-sources", "--credit", "reward",
    "--patience", 2,
)  # fmt: skip
"""A ranker that sees inputs only; a demonstration is credited with the reward of its prompt."""

FROM_TRIALS = ("--trials", 40, "--epochs", 0, "--rate", 0.001)
"""The ranker from the answers of `train sources`, which costs no request."""

VARIANTS = ("topick-union", "topick-alone", "topick-no-knowledge", "topick-ranks")
ABLATION = "w/o core topics"
"""What TopicK is without an LLM that picks core topics: words shared with a text are its topics."""


class Other(NamedTuple):
    """How another LLM was asked: its precision, on how many test queries, and the ``calls`` of `curate`."""

    dtype: str
    queries: int
    calls: int


class Workspace:
    """A separate workspace, and the commands run on it."""

    def __init__(self, folder: Path, name: str, spec: str, dtype: str = "float32", records: bool = False) -> None:
        self.folder, self.name, self.spec, self.dtype, self.records = folder / name, name, spec, dtype, records

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
        kept = MODELS / f"vectors-{world}"
        for encoded in self.folder.glob("vectors/*"):
            if self.records and not kept.exists():
                shutil.copytree(encoded, kept, ignore=shutil.ignore_patterns("lock"))
            elif kept.exists():
                dimension = json.loads((kept / HEAD).read_text())["dimension"]
                here, recorded = (
                    np.fromfile(one / MATRIX, np.float32).reshape(-1, dimension) for one in (encoded, kept)
                )
                if here.shape != recorded.shape or not (here * recorded).sum(axis=1).min() >= NEAR:
                    sys.exit(f"{world}: vectors are not near the recorded ones")
                shutil.copytree(kept, encoded, dirs_exist_ok=True)

    def ask(self, *arguments: object) -> dict[str, Any]:
        return self.run(*arguments, "--llm", self.spec)

    def train(self, name: str, part: str, *arguments: object) -> dict[str, Any]:
        """Train a ``part``: its requests (``calls``), and whether a ranker kept its start (``untrained``). The model is
        recorded as ``name``; a replay compares what training showed and goes on with the recorded model."""
        done, kept = self.ask("train", part, *arguments), MODELS / name
        at = topic_files if part == "topics" else ranker_files
        store, shown = Store.open(self.folder), kept / "training.json"
        told = {"calls": done["calls"], "untrained": done["metrics"].get("untrained"), "curve": curve(done)}
        if self.records:
            shutil.copytree(at.folder_of(store, done["run"]), kept, dirs_exist_ok=True)
            shown.write_text(json.dumps(told, indent=1) + "\n")
        elif self.spec.startswith("replay:"):
            recorded = json.loads(shown.read_text())
            difference = apart(told["curve"], recorded["curve"])
            if difference > TOLERANCE:
                sys.exit(f"{name}: training differs from the recorded one by {difference:.1%}, above {TOLERANCE:.0%}")
            (last,) = runs.runs(store, limit=1)
            with runs.recorded(store, last.kind, last.llm, last.settings) as record:
                shutil.copytree(kept, folder := at.folder_of(store, record.run))
                seal_model(store, record.run, folder, at.FILES)
                record.summary = last.summary
            return dict(recorded)
        return told


def curve(done: Mapping[str, Any]) -> list[float]:
    """What training showed: losses of the topics by epoch, the expected reward of a ranker by pass over its trials, or
    the loss of its first batch, whose prompts no training has changed."""
    metrics = done["metrics"]
    if "held_out" in metrics:
        return [epoch["loss"] for epoch in metrics["epochs"]]
    return metrics.get("trials") or [metrics["batches"][0]["loss"]]


def apart(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference of two curves, as a share of the largest value; the end of the longer is left out."""
    pairs = np.array([*zip(one, other, strict=False)])
    return float(np.abs(pairs[:, 0] - pairs[:, 1]).max() / np.abs(pairs).max())


def missing(workspace: Workspace) -> tuple[int, int]:
    """How many prompts of a replay have no recorded answer, and of how many; the first few are named."""
    with Store.open(workspace.folder).read() as con:
        named = con.execute(
            "SELECT min(message) FROM llm_failures WHERE kind = 'missing' GROUP BY key ORDER BY 1"
        ).fetchall()
        (answered,) = con.execute("SELECT count(*) FROM llm_calls").fetchone() or (0,)
    for (message,) in named[:20]:
        print(message, file=sys.stderr)
    total = len(named) + int(answered)
    print(f"{workspace.name}: {len(named):,} of {total:,} prompts have no recorded answer", file=sys.stderr)
    return len(named), total


def alike(page: str, new: str, lacking: int) -> bool:
    """Whether two pages are the same; where ``lacking`` prompts have no answer, their figures with a decimal point may
    differ by what these can change of `QUERIES`, and by rounding."""
    figure = r"-?\d*\.\d+"
    slack = lacking / QUERIES + 0.005 if lacking else 0.0
    both = zip(re.findall(figure, page), re.findall(figure, new), strict=False)
    return re.sub(figure, "·", page) == re.sub(figure, "·", new) and all(
        abs(float(one) - float(other)) <= slack for one, other in both
    )


def support(workspace: Workspace) -> dict[str, str]:
    """The tables of the sample pool."""
    return untrained(workspace) | trained(workspace)


def untrained(workspace: Workspace) -> dict[str, str]:
    """Methods on the pool as it came and without its worst sources, what `train sources` sees, and ways to curate."""
    workspace.index("support")
    restore(workspace)  # after a run that was stopped
    asked = workspace.ask("train", "sources", "--depth", 10, "--limit", 40)
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


def larger(workspace: Workspace) -> dict[str, str]:
    """The sample pool curated and served with another LLM."""
    workspace.index("support")
    other = OTHERS[workspace.name]
    curate = ("curate", "--max-calls", other.calls, "--yes", "-m", "dense", "-k", 5, "--llm", workspace.spec)
    ways = {
        "as it came": (),
        "`check prune label`": ("check", "prune", "label"),
        "`check relabel`": ("check", "relabel"),
        **({f"`curate --max-calls {other.calls}`": curate} if other.calls else {}),
        "only true rows": only(wrong_rows()),
    }
    return {workspace.name: gains(workspace, ways, ("dense",), other.queries, 5)}


def wrong_rows() -> list[str]:
    """Ids of the rows of the sample pool whose output is wrong."""
    rows = [json.loads(line) for line in (SAMPLE / "support" / "truth_rows.jsonl").read_text().splitlines()]
    return [row["id"] for row in rows if not row["correct"]]


def trained(workspace: Workspace) -> dict[str, str]:
    """The ranker and the topics without core topics, on the workspace that `untrained` leaves, and what their papers
    claim.

    They are trained last: what they learn is evidence about rows, too, and the decisions before are made without it."""
    ranker = workspace.train("ranker-inputs-alone", "ranker", "--limit", 60, *INPUTS_ALONE)
    topics = workspace.train("topics", "topics", "--no-llm-topics", "--questions", 300)
    first_runs = with_worst_and_without(workspace, TRAINED)
    kept = ": untrained start kept" if ranker["untrained"] else ""
    workspace.train("ranker-from-trials", "ranker", "--limit", 60, *FROM_TRIALS)
    from_trials = with_worst_and_without(workspace, ("ranker-untrained", "ranker"))
    found = [
        {
            "set-bsr": first["set-bsr"],
            f"ranker, inputs alone{kept}": first["ranker"],
            "ranker, its start": second["ranker-untrained"],
            "ranker, from trials": second["ranker"],
            f"topick, {ABLATION}": first["topick"],
        }
        for first, second in zip(first_runs, from_trials, strict=True)
    ]
    variants = workspace.ask("evaluate", "-m", ",".join(VARIANTS), "--limit", 60, "--seeds", 1)["methods"]
    found[0] |= {f"{name}, {ABLATION}": figures for name, figures in variants.items()}
    return {
        "trained": methods_table(found, ranker["calls"] + topics["calls"]),
        "ranker-claims": claims(
            [
                ("from prompts (the paper's)", "+2.97 points over the best baseline", None),
                ("from trials (ours), above dense retrieval", "–", against(workspace, "ranker", "dense")),
                ("from trials (ours), above its own start", "–", against(workspace, "ranker", "ranker-untrained")),
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
    names = ("-m", ",".join(methods), "--limit", QUERIES, "--seeds", 1)
    before = workspace.ask("evaluate", *names)["methods"]
    for source in WORST:
        workspace.run("prune", "--source", source)
    after = workspace.ask("evaluate", *names)["methods"]
    restore(workspace)
    return [before, after]


def against(workspace: Workspace, method: str, other: str) -> Comparison:
    """The paired difference of two methods on the pool as it came."""
    done = workspace.ask("evaluate", "-m", f"{other},{method}", "--limit", 60, "--seeds", 1)
    found = outcomes(Store.open(workspace.folder), done["run"], method, other)
    return compare(
        np.array([each.right for each in found], float), np.array([each.other_right for each in found], float)
    )


def claims(rows: Sequence[tuple[str, str, Comparison | None]]) -> str:
    """What a paper claims, by how much, and the paired difference that was measured here, if one was."""
    told = []
    for claim, paper, here in rows:
        if here is None:
            told.append([claim, paper, "–", "–", "not measured"])
            continue
        verdict = "beyond noise" if here.low > 0 else "the reverse" if here.high < 0 else "not beyond noise"
        told.append([claim, paper, f"{here.difference:+.3f}", f"{here.low:+.2f} to {here.high:+.2f}", verdict])
    return table(["what", "in the paper", "here", "95 %", "difference"], told)


def facts(workspace: Workspace) -> dict[str, str]:
    """Calibration rounds over ten documents."""
    workspace.index("facts")
    done = workspace.ask("calibrate", "--split", "validation", "--limit", 24, "--rounds", 3)
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
    tune = ("tune", "-m", "dense", "-k", k, "--llm", workspace.spec)
    ways: dict[str, tuple[object, ...]] = {
        "as it came": (),
        f"`check prune {kind}`": ("check", "prune", kind),
        **({"`check relabel`": ("check", "relabel")} if kind == "label" else {}),
        "`tune vote`": ("tune", "vote", "-k", k),
        "`suspects prune`": ("suspects", "prune"),
        **{f"`tune --limit {limit}`": (*tune, "--limit", limit) for limit in limits},
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
    shown = ("-m", ",".join(methods), "--limit", queries, "--seeds", 1, "-k", k)
    restore(workspace)
    figures, calls, rows = {}, {}, {}
    for name, words in ways.items():
        done = workspace.run(*words) if words else {}
        calls[name] = (
            done.get("calls") if done.get("kind") == "curation" else (done.get("confirmed") or {}).get("calls")
        )
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
            workspace.run("undo")


OTHERS = {
    "gemma3-270m": Other("float32", 200, 300),
    "qwen2.5-coder-0.5b": Other("bfloat16", 200, 300),
    "qwen2.5-coder-1.5b": Other("bfloat16", 200, 300),
}
PARTS: Mapping[str, Callable[[Workspace], dict[str, str]]] = {
    "support": support,
    "facts": facts,
    **dict.fromkeys(OTHERS, larger),
}


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
    parser.add_argument("--llm", default=LLM, help="of a larger LLM's part, where it is asked")
    chosen = parser.parse_args()
    tables: dict[str, str] = {}
    lacking = asked = 0
    live = chosen.live or chosen.record
    with tempfile.TemporaryDirectory() as temporary:
        # answers of an LLM take minutes, so they are stored: a stopped run continues from them
        folder = ROOT / "build" / ("recording" if chosen.record else "evidence") if live else Path(temporary)
        for name, part in PARTS.items():
            if chosen.only not in (None, name) or (live and (name in OTHERS) != (chosen.llm != LLM)):
                continue
            recording = RECORDINGS / f"{name}.parquet"
            spec = chosen.llm if live else f"replay:{recording}"
            dtype = OTHERS[name].dtype if name in OTHERS else "float32"
            workspace = Workspace(folder, name, spec, dtype, records=chosen.record)
            if chosen.record and recording.exists():
                calls.record(Store.create(workspace.folder), [*calls.read_recording(recording)[1].values()])
            tables |= part(workspace)
            if not live:
                lacking, asked = (sum(pair) for pair in zip((lacking, asked), missing(workspace), strict=True))
            if chosen.record:
                recording.parent.mkdir(exist_ok=True)
                workspace.run("llm", "record", recording, "--llm", chosen.llm)
    for table in tables.values():
        print(table, end="\n\n")
    page = PAGE.read_text(encoding="utf-8")
    new = written(page, tables)
    if lacking > SHARE * asked:
        sys.exit(
            f"{lacking:,} of {asked:,} prompts have no recorded answer, more than {SHARE:.0%}: --record asks the LLM"
        )
    if chosen.check or chosen.live:
        sys.exit(0 if alike(page, new, lacking) else "the tables differ from those of docs/evidence/replayed.md")
    if lacking:
        sys.exit("the page is not written with figures that lack answers: --record asks the LLM")
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
