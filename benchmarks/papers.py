"""What the papers claim, each in its own setting, with an LLM that can do the task.

    python benchmarks/papers.py WORK --llm hf:qwen2.5-coder-0.5b.gguf [--part ranker] [--pools POOLS] [--cms CMS]
        [--gsm8k FILE]

WORK keeps the workspaces: a run that was stopped goes on where it was, and asks nothing twice.

- ``ranker``: the sample pool, 200 validation queries to train on and 200 test queries, k = 5, three seeds: the ranker
  as its paper prints it, the same without σ, this tool's default, and PromptPG, against dense retrieval and their own
  starts, on easy and hard queries.
- ``ranker-elsewhere``: this tool's default on pools that no setting was chosen on, one a seed: 15 intents of banking77
  from six sources (`real_llm.py`; POOLS as there), k = 4, up to 200 queries of each kind; and what `check` does there.
- ``ranker-fast``: the same with ten times the rate, which was the default of 0.3, and without an early stop.
- ``ranker-curated``: as ``ranker-elsewhere``, trained and asked on what `check prune label` leaves.
- ``ranker-further``: those rankers with fewer shots, each on the pool of another, and PromptPG.
- ``ranker-parts``: the first of these pools, the default with one part at a time as in the paper, and PromptPG.
- ``topick``: commonsenseqa of POOLS with eight shots, with the topics and core topics released with the paper. CMS
  holds ``topics.json``, ``core_topics.jsonl`` and the released ``train.jsonl``; questions are matched by their text.
- ``topick-asked``: the same against baselines that ask the LLM to select; MDL takes as many tokens as all others.
- ``topick-core``: the same beside topics whose words a row shares, instead of core topics: the ablation of table 3.
- ``topick-picked``: the sample pool with the core topics that the LLM ``--picks`` picks, and without core topics.
- ``rounds``, ``demonstrations``: three rounds of calibration over the documents of ``facts``, and over the
  demonstrations of the sample pool, all arms; of the latter also whether their scores tell wrong rows.
- ``rounds-hotpotqa``: rounds over the ten documents of 60 questions of HotpotQA in POOLS.
- ``rounds-steps``: rounds over the steps of the LLM's own reasoning (paper 001, section 5.4), on 60 problems of
  GSM8K, openai/grade-school-math's grade_school_math/data/train.jsonl.
- ``tuned``: rounds over the documents of ``facts``, with the LLM as it came and fine-tuned on rounds over the pool.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from calibration import Rows, hotpotqa
from evidence import Workspace, interval, restore, table, wrong_rows
from icl_curate.engine.base.arrays import Bools, Float64s
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.evidence import row_evidence
from icl_curate.engine.evaluate.statistics import Comparison, compare
from icl_curate.engine.pool.answers import normalise
from icl_curate.engine.store.runs import outcomes
from icl_curate.engine.store.settings import resolve
from icl_curate.engine.store.workspace import Workspace as Store
from real_llm import noisy_intents, read, write
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import cross_val_predict

SEEDS = 3
PRINTED = (
    "--candidates", "bm25", "--preselect", 20, "--sees", "row", "--no-sources", "--credit", "reward",
    "--temperature", 1, "--start", "random", "--held-out", 0, "--patience", 0, "--epochs", 5,
    "--rate", 0.01,
)  # fmt: skip
"""Paper 001 as printed, but for σ."""
FORMS: Mapping[str, tuple[object, ...]] = {
    "as printed": (*PRINTED, "--threshold"),
    "the default": (),
    "PromptPG, the default's inputs": ("--method", "promptpg"),
    "as printed, without σ": (*PRINTED, "--no-threshold"),
}
QUESTIONS = 60
"""Of HotpotQA and of GSM8K."""
TUNED_ON = 200
RECIPE = ("--rate", 5e-4, "--batch", 4, "--epochs", 1)
"""As SmolLM2 was tuned before, on the same data."""
PARTS_OF_DEFAULT: Mapping[str, tuple[object, ...]] = {
    "the default": (),
    "without sources": ("--no-sources",),
    "credit as printed": ("--credit", "reward"),
    "temperature 1": ("--temperature", 1),
    "with σ": ("--threshold",),
    "random start": ("--start", "random"),
    "inputs alone": ("--sees", "input"),
    "candidates by bm25": ("--candidates", "bm25"),
    "PromptPG": ("--method", "promptpg"),
}
"""The default, and it with one part as in the paper."""
RETRIEVED = (
    "dense,topick",
    "dense,topick,set-bsr",
    "dense,topick,topick-alone,topick-no-knowledge,topick-union",
)
"""Without asking the LLM; the last are the ablations of table 3."""
ASKED = ("dense,topick,rerank", "dense,topick,mdr", "dense,topick,cone", "dense,topick,mdl")
"""Baselines of table 2 that ask the LLM to select, the dearest last."""
COVERAGE = ("topic_coverage", "topic_redundancy")
PRUNED = "dense, after check prune label"
ARMS = ("full", "answers", "plain", "oracle", "sampling", "vote")


def ranker(workspace: Workspace) -> Iterable[str]:
    """Each form with each seed; values of a query are means over seeds."""
    if not workspace.folder.exists():
        workspace.index("support")
    restore(workspace)
    dense = workspace.ask("evaluate", "-m", "dense", "--split", "test", "--seeds", 1, "-k", 5)
    base = values(workspace, dense["run"], "dense")
    told = [["dense", f"{base.mean():.3f}", interval(dense["methods"]["dense"]["ci95"]), "–", "–",
             hard_and_easy([dense["methods"]["dense"]]), "–", "–"]]  # fmt: skip
    for form, options in FORMS.items():
        method = "promptpg" if form.startswith("PromptPG") else "ranker"
        ends, starts, kept, figures, calls = [], [], [], [], 0
        for seed in range(SEEDS):
            done = workspace.ask("train", "ranker", *options, "--seed", seed, "-k", 5)
            calls += done["calls"]
            metrics = done["metrics"]
            kept.append("start" if metrics["untrained"] else f"{metrics['best']['epoch']}")
            own = ("--seed", seed, "--seeds", 1)  # of several rankers, that of the seed answers
            found = workspace.ask("evaluate", "-m", f"{method},ranker-untrained", "--split", "test", *own, "-k", 5)
            ends.append(values(workspace, found["run"], method))
            figures.append(found["methods"][method])
            if method == "ranker":
                starts.append(values(workspace, found["run"], "ranker-untrained"))
        end = np.mean(ends, axis=0)
        low, high = np.quantile(resampled(end), (0.025, 0.975))
        own = difference(compare(end, np.mean(starts, axis=0))) if starts else "–"
        each = " ".join(f"{one.mean():.3f}" for one in ends)
        told.append([form, f"{end.mean():.3f} ({each})", interval((low, high)), difference(compare(end, base)), own,
                     hard_and_easy(figures), ", ".join(kept), f"{calls:,}"])  # fmt: skip
        heads = ["ranker", "accuracy (by seed)", "95 %", "over dense", "over its start", "hard, easy", "epoch kept",
                 "prompts"]  # fmt: skip
        yield table(heads, told, f"{len(base)} test queries")


def ranker_elsewhere(pools: Path, workspace: Workspace, *options: object, curated: bool = False) -> Iterable[str]:
    """The default, or with other ``options``, on one pool a seed, against retrieval and its start: on the pool as it
    came, against retrieval from what `check` leaves, too; or trained and asked on the latter, ``curated``."""
    arms: dict[str, list[Float64s]] = {}
    for seed in range(SEEDS):
        world = Workspace(workspace.folder, f"{seed}", workspace.spec, workspace.dtype)
        elsewhere(pools, world, seed)
        if curated:
            world.run("check", "prune", "label")
        shared = ("--split", "test", "--seed", seed, "--seeds", 1, "--limit", 200, "-k", 4)
        done = world.ask("train", "ranker", *options, "--seed", seed, "--limit", 200, "-k", 4)
        methods = ("dense", "ranker", "ranker-untrained")
        found = world.ask("evaluate", "-m", ",".join(methods), *shared)
        measured = {name: values(world, found["run"], name) for name in methods}
        if not curated:
            world.run("check", "prune", "label")
            cured = world.ask("evaluate", "-m", "dense", *shared)
            restore(world)
            measured[PRUNED] = values(world, cured["run"], "dense")
        for arm, each in measured.items():
            arms.setdefault(arm, []).append(each)
        best = "start" if done["metrics"]["untrained"] else done["metrics"]["best"]["epoch"]
        yield f"pool {seed}: {done['calls']:,} prompts, epoch kept: {best}"
        joined = {arm: np.concatenate(parts) for arm, parts in arms.items()}
        against = [arm for arm in ("dense", "ranker-untrained", PRUNED) if arm in joined]
        told = [
            [arm, " ".join(f"{one.mean():.3f}" for one in arms[arm]), f"{all_of.mean():.3f}",
             *(difference(compare(all_of, joined[base])) for base in against)]
            for arm, all_of in joined.items()
        ]  # fmt: skip
        yield table(
            ["method", "by pool", "all", *(f"over {arm}" for arm in against)],
            told,
            f"{len(joined['dense'])} test queries",
        )


def ranker_further(pools: Path, workspace: Workspace) -> Iterable[str]:
    """The rankers of `ranker_elsewhere` on the two pools on which nothing was chosen: with fewer shots (figure 8), each
    on the other's pool (table 3), and PromptPG (table 2)."""
    trained = workspace.folder.parent / "ranker-elsewhere"
    worlds = {seed: Workspace(trained, f"{seed}", workspace.spec, workspace.dtype) for seed in (1, 2)}
    options = {seed: ("--seed", seed, "--limit", 200) for seed in worlds}
    for seed, world in worlds.items():
        elsewhere(pools, world, seed)
        world.ask("train", "ranker", *options[seed], "-k", 4)
    for seed, world in worlds.items():
        done = world.ask("train", "ranker", "--method", "promptpg", *options[seed], "-k", 4)
        shared = ("--split", "test", "--seeds", 1, *options[seed])
        told = []
        default: Float64s | None = None
        for k, methods in (
            (4, "ranker,ranker-untrained,dense,promptpg"),
            (1, "ranker,ranker-untrained,dense"),
            (2, "ranker,ranker-untrained,dense"),
        ):
            other = ("--transfer", worlds[3 - seed].folder) if k == 4 else ()
            found = world.ask("evaluate", "-m", methods, *other, *shared, "-k", k)
            for name in ("ranker", *(name for name in found["methods"] if name != "ranker")):
                own = values(world, found["run"], name)
                default = own if default is None else default
                told.append([f"{k}", name, f"{own.mean():.3f}", difference(compare(own, default))])
        heads = ["shots", "method", "accuracy", "over the ranker with 4"]
        yield table(heads, told, f"pool {seed}, 200 test queries; PromptPG: {done['calls']:,} prompts")


def elsewhere(pools: Path, world: Workspace, seed: int) -> None:
    """A pool on which no setting was chosen: 15 noisy intents."""
    if not world.folder.exists():
        files = world.folder.parent / f"files-{seed}"
        noisy_intents(pools, files, 30 + seed)
        world.run("index", files / "pool.jsonl", *(f"--{n}={files / n}.jsonl" for n in ("validation", "test")))
    restore(world)


def ranker_parts(pools: Path, workspace: Workspace) -> Iterable[str]:
    """The default with one part changed at a time, on the first pool of `ranker_elsewhere`: which part gains."""
    elsewhere(pools, workspace, 0)
    shared = ("--split", "test", "--seeds", 1, "--limit", 200, "-k", 4)
    base = workspace.ask("evaluate", "-m", "dense", *shared)
    dense = values(workspace, base["run"], "dense")
    told = [["dense", f"{dense.mean():.3f}", "–", "–", "–", "–", "–"]]
    default: Float64s | None = None
    for form, options in PARTS_OF_DEFAULT.items():
        method = "promptpg" if "promptpg" in options else "ranker"
        done = workspace.ask("train", "ranker", *options, "--limit", 200, "-k", 4)
        found = workspace.ask("evaluate", "-m", f"{method},ranker-untrained", *shared)
        end, start = (values(workspace, found["run"], name) for name in (method, "ranker-untrained"))
        default = end if default is None else default
        kept = "start" if done["metrics"]["untrained"] else done["metrics"]["best"]["epoch"]
        told.append([form, f"{end.mean():.3f}", f"{start.mean():.3f}", difference(compare(end, start)),
                     difference(compare(end, dense)), difference(compare(end, default)),
                     f"{kept}, {done['calls']:,}"])  # fmt: skip
        heads = [
            "ranker",
            "accuracy",
            "its start",
            "over its start",
            "over dense",
            "over the default",
            "epoch, prompts",
        ]
        yield table(heads, told, f"{len(dense)} test queries")


def ranker_questions(data: str, pools: Path, workspace: Workspace) -> Iterable[str]:
    """The default on questions as they come, of `commonsenseqa` or `nq_open`: 200 to learn from, 200 of the test."""
    if not workspace.folder.exists():
        splits = (f"--{name}={pools / data / name}.jsonl" for name in ("validation", "test"))
        workspace.run("index", pools / data / "train.jsonl", *splits)
    done = workspace.ask("train", "ranker", "--limit", 200, "-k", 5)
    methods = ("dense", "ranker", "ranker-untrained", "zero")
    found = workspace.ask("evaluate", "-m", ",".join(methods), "--split", "test", "--limit", 200, "--seeds", 1, "-k", 5)
    measured = {name: values(workspace, found["run"], name) for name in methods}
    best = "start" if done["metrics"]["untrained"] else done["metrics"]["best"]["epoch"]
    told = [
        [name, f"{own.mean():.3f}", *(difference(compare(own, measured[base])) for base in methods if base != "ranker")]
        for name, own in measured.items()
    ]
    note = f"{len(measured['dense'])} test queries; {done['calls']:,} prompts, epoch kept: {best}"
    yield table(["method", "accuracy", *(f"over {name}" for name in methods if name != "ranker")], told, note)


def plain(text: str) -> str:
    return " ".join(text.lower().split())


def known_topics(pools: Path, cms: Path, workspace: Workspace) -> tuple[object, ...]:
    """Indexes commonsenseqa; the options with which its released topics and core topics are learnt."""
    data, files = pools / "commonsenseqa", workspace.folder.parent / "topick-files"
    core, topics = files / "core.jsonl", files / "topics.txt"
    if not workspace.folder.exists():
        files.mkdir(parents=True, exist_ok=True)
        names: list[str] = json.loads((cms / "topics.json").read_text())
        topics.write_text("\n".join(names) + "\n")
        told = [json.loads(line)["text"] for line in (cms / "train.jsonl").read_text().splitlines()]
        numbers: dict[str, list[int]] = {}
        for i, text in enumerate(told):
            numbers.setdefault(plain(text.split(" (A) ")[0]), []).append(i)
        picked = [json.loads(line)["topic_ids"] for line in (cms / "core_topics.jsonl").read_text().splitlines()]
        asked = (data / "validation.jsonl").read_text().splitlines()[:200]
        (files / "validation.jsonl").write_text("\n".join(asked) + "\n")
        with core.open("w") as lines:
            for line in [*(data / "train.jsonl").read_text().splitlines(), *asked]:
                row = json.loads(line)
                same = numbers[plain(row["input"])]  # one question is there twice, with other options
                asks = next((i for i in same if plain(row["options"][0]) in plain(told[i])), same[0])
                own = [names[topic] for topic in picked[asks]]
                lines.write(json.dumps({"id": row["id"], "topics": own}) + "\n")
        splits = ("--validation", files / "validation.jsonl", "--test", data / "test.jsonl")
        workspace.run("index", data / "train.jsonl", *splits)
    return "--topics", topics, "--core-topics", core


def topick(
    pools: Path, cms: Path, queries: int, workspace: Workspace, against: Sequence[str] = RETRIEVED
) -> Iterable[str]:
    """TopicK with the released core topics ``against`` other methods, some at a time, on ``queries`` test queries."""
    workspace.ask("train", "topics", *known_topics(pools, cms, workspace), "--questions", 600, "-k", 8)
    shared = ("--split", "test", "--limit", queries, "-k", 8, "--seeds", 1)
    for methods in against:
        found = workspace.ask("evaluate", "-m", methods, *shared)
        each = {name: values(workspace, found["run"], name) for name in ["zero", *methods.split(",")]}
        easy = each["zero"] > 0
        lines = []
        for name, own in each.items():
            figures = found["methods"].get(name, {})
            covers = [f"{figures[part][-1]:.2f}" if figures.get(part) else "–" for part in COVERAGE]
            others = [difference(compare(each["topick"], own))] if name != "topick" else ["–"]
            if name not in ("zero", "topick"):
                others += [difference(compare(each["topick"][which], own[which])) for which in (easy, ~easy)]
            others += ["–"] * (3 - len(others))
            low, high = np.quantile(resampled(own), (0.025, 0.975))
            lines.append([name, f"{own.mean():.3f}", interval((low, high)), *others, *covers])
        heads = ["method", "accuracy", "95 %", "topick over it", "easy", "hard", "topics", "repeated"]
        yield table(heads, lines, f"{easy.size} test queries, {easy.sum()} easy")


def topick_core(pools: Path, cms: Path, queries: int, workspace: Workspace) -> Iterable[str]:
    """TopicK with the released core topics and with those that share words with a row: an ablation of table 3."""
    known = known_topics(pools, cms, workspace)
    ways = {"core topics by GPT-4o": known, "without core topics": (*known[:2], "--no-llm-topics")}
    yield by_core_topics(workspace, ways, ("--limit", queries, "-k", 8), ("--questions", 600, "-k", 8))


def topick_picked(picks: str, workspace: Workspace) -> Iterable[str]:
    """TopicK on the sample pool with core topics that another LLM ``picks``, and without core topics."""
    if not workspace.folder.exists():
        workspace.index("support")
    ways = {
        f"core topics by {Path(picks).stem}": ("--labelling-llm", picks),
        "without core topics": ("--no-llm-topics",),
    }
    yield by_core_topics(workspace, ways, ("-k", 5), ("-k", 5))


def by_core_topics(
    workspace: Workspace, ways: Mapping[str, Sequence[object]], asked: Sequence[object], learnt: Sequence[object]
) -> str:
    """TopicK ``learnt`` with each of some ``ways`` to core topics, the first against the others and `dense`."""
    shared = ("--split", "test", "--seeds", 1, *asked)
    found = workspace.ask("evaluate", "-m", "dense", *shared)
    each = {"dense": values(workspace, found["run"], "dense")}
    parts = {"dense": ["–", "–", "–"]}
    for name, options in ways.items():
        metrics = workspace.ask("train", "topics", *options, *learnt)["metrics"]
        found = workspace.ask("evaluate", "-m", "topick", *shared)
        each[name] = values(workspace, found["run"], "topick")
        covers = found["methods"]["topick"]["topic_coverage"][-1]
        parts[name] = [f"{metrics['core_per_example']:.1f}", f"{metrics['average_precision']:.3f}", f"{covers:.2f}"]
    first = each[next(iter(ways))]
    lines = [
        [name, f"{own.mean():.3f}", *(difference(pair) for pair in (compare(own, each["dense"]), compare(first, own))),
         *parts[name]]
        for name, own in each.items()
    ]  # fmt: skip
    heads = ["method", "accuracy", "over dense", "with core topics over it", "topics a text", "precision", "covered"]
    return table(heads, lines, f"{first.size} test queries")


def rounds(workspace: Workspace) -> Iterable[str]:
    """All arms over ten documents a query."""
    if not workspace.folder.exists():
        workspace.index("facts")
    done = workspace.ask("calibrate", "--split", "validation", "-r", 3, "--arms", ",".join(ARMS))
    yield arms_table(done)


def rounds_elsewhere(rows: Callable[[], Rows], options: Sequence[object], workspace: Workspace) -> Iterable[str]:
    """Two rounds on questions of other data, against as many samples and the scores of an oracle."""
    if not workspace.folder.exists():
        files = workspace.folder.with_name(f"{workspace.name}-files")
        write(files / "validation.jsonl", rows())
        write(files / "pool.jsonl", [{"input": "an unused demonstration", "output": "of no use"}])
        workspace.run("index", files / "pool.jsonl", "--validation", files / "validation.jsonl")
    done = workspace.ask("calibrate", "--split", "validation", "-r", 2, *options, "--arms", "full,oracle,sampling")
    yield arms_table(done)


def rounds_hotpotqa(pools: Path, workspace: Workspace) -> Iterable[str]:
    """Rounds over ten documents, two of them relevant; and which of the two their scores tell from the distractors."""
    rows = hotpotqa(pools, QUESTIONS)
    yield from rounds_elsewhere(lambda: rows, (), workspace)
    outputs = {row["input"]: f" {normalise(row['output'])} " for row in rows}
    with Store.open(workspace.folder).read() as con:
        documents = con.execute(
            """SELECT place, input, text, relevant, uncertainty
               FROM calibration_documents JOIN calibrations USING (run, place)
               WHERE arm = 'full' AND run = (SELECT max(run) FROM calibrations) ORDER BY place, document"""
        ).fetchall()
    within: dict[str, list[float]] = {}
    for _, shown in groupby((one for one in documents if one[4] is not None), key=itemgetter(0)):
        _, asked, texts, relevant, uncertainty = zip(*shown, strict=True)
        output, told, sure = outputs[asked[0]], np.array(relevant, bool), -np.array(uncertainty)
        says = np.array([output in f" {normalise(text)} " for text in texts])
        named = output.strip() not in ("yes", "no")
        kinds = {"with the answer": told & says, "without it": told & ~says} if named else {"of yes and no": told}
        for name, own in kinds.items():
            if own.any() and not told.all():
                both = own | ~told
                within.setdefault(name, []).append(roc_auc_score(own[both], sure[both]))
    for name, aurocs in within.items():
        low, high = np.quantile(resampled(np.array(aurocs)), (0.025, 0.975))
        yield (
            f"relevant documents {name}: AUROC within a question {np.mean(aurocs):.2f} ({low:.2f} to {high:.2f}), "
            f"{len(aurocs)} questions"
        )


def problems(data: Path, rows: int) -> Rows:
    """Of GSM8K, with their numbers alone as outputs."""
    return [
        {"input": row["question"], "output": row["answer"].rpartition("####")[2].strip().replace(",", "")}
        for row in read(data)[:rows]
    ]


def tuned(workspace: Workspace) -> Iterable[str]:
    """Rounds over documents with the LLM as it came, tuned on its own rounds over the pool, and on as many questions
    with their references."""
    if not workspace.folder.exists():
        workspace.index("facts")
    learnt = workspace.ask("calibrate", "--split", "pool", "--limit", TUNED_ON, "-r", 2, "--until-correct")
    yield f"{TUNED_ON} questions of the pool: {learnt['calls']:,} answers"
    llms = {"as it came": workspace}
    examples: tuple[object, ...] = ()
    for on in ("rounds", "answers"):
        out = workspace.folder.with_name(f"tuned-on-{on}")
        done = workspace.ask("train", "calibration", "--split", "pool", "--on", on, *RECIPE, *examples, "--out", out)
        examples = ("--limit", done["metrics"]["examples"])
        told = {key: done["metrics"][key] for key in ("examples", "counts", "trained_tokens", "seconds")}
        yield f"on {on}: {json.dumps(told)}"
        llms[f"on {on}"] = Workspace(workspace.folder.parent, workspace.name, f"hf:{out}", workspace.dtype)
    arms = ("full", "oracle", "sampling")
    for name, llm in llms.items():
        done = llm.ask("calibrate", "--split", "validation", "--limit", 100, "-r", 2, "--arms", ",".join(arms))
        yield f"### {name}\n\n{arms_table(done)}"


def demonstrations(workspace: Workspace) -> Iterable[str]:
    """All arms over five demonstrations a query, and the scores of wrong rows against those of right ones."""
    if not workspace.folder.exists():
        workspace.index("support")
    over = ("--over", "demonstrations", "-m", "dense", "-k", 5, "--limit", 100)
    done = workspace.ask("calibrate", "--split", "validation", "-r", 3, *over, "--arms", ",".join(ARMS))
    yield arms_table(done)
    store = Store.open(workspace.folder)
    with store.read() as con:
        scores = dict(
            con.execute(
                "SELECT id, avg(score) FROM calibration_documents WHERE run = ? AND score IS NOT NULL GROUP BY id",
                [done["run"]],
            ).fetchall()
        )
    found = row_evidence(ActivePool(store, resolve(store.path, {}).settings)).rows
    known = {row.id: row.posterior for row in found if row.id in scores}
    wrong = set(wrong_rows())
    bad = np.array([name in wrong for name in known])
    score, check = np.array([scores[name] for name in known]), np.clip([*known.values()], 1e-6, 1 - 1e-6)
    odds = np.log(check / (1 - check))
    alone, both = (_log_loss(np.stack(parts, 1), bad) for parts in ([odds], [odds, score]))
    yield (
        f"{bad.size} rows scored, {bad.sum()} wrong. AUROC of wrong rows: by score {roc_auc_score(bad, score):.2f}, "
        f"by `check` {roc_auc_score(bad, check):.3f}. Log loss, cross-fitted, {alone:.3f}, with it {both:.3f}."
    )


def _log_loss(parts: Float64s, bad: Bools) -> float:
    """Of a logistic regression on standardised ``parts`` (n, p), over ten folds."""
    x = (parts - parts.mean(0)) / parts.std(0)
    return float(log_loss(bad, cross_val_predict(LogisticRegression(), x, bad, cv=10, method="predict_proba")[:, 1]))


def arms_table(done: Mapping[str, Any]) -> str:
    """Final answers of each arm, and how well their uncertainty tells right from wrong."""
    rows = [
        [
            name,
            f"{arm['accuracy']:.3f}",
            interval(arm["ci95"]),
            f"{arm['f1']:.3f}",
            "–" if arm["auroc"] is None else f"{arm['auroc']:.2f}",
            f"{arm['reliability']['error']:.2f}",
        ]
        for name, arm in done["arms"].items()
    ]
    first = done["arms"]["full"]["rounds"][0]
    note = f"first answers {first['accuracy']:.3f}, AUROC {first['auroc']:.2f}; {done['calls']:,} answers"
    return table(["arm", "exact match", "95 %", "F1", "AUROC", "calibration error"], rows, note)


def values(workspace: Workspace, run: int, method: str) -> Float64s:
    """The value of each query's answer, by query."""
    found = sorted(outcomes(Store.open(workspace.folder), run, method), key=lambda each: each.row)
    return np.array([each.right for each in found], float)


def resampled(each: Float64s) -> Float64s:
    draw = np.random.default_rng(0).integers(0, each.size, (10_000, each.size))
    return np.asarray(each[draw].mean(axis=1), float)


def hard_and_easy(figures: Sequence[Mapping[str, Any]]) -> str:
    """Means over seeds."""
    return ", ".join(f"{np.mean([each[kind] for each in figures]):.3f}" for kind in ("hard", "easy"))


def difference(found: Comparison) -> str:
    return f"{found.difference:+.3f} ({found.low:+.2f} to {found.high:+.2f})"


PARTS: Mapping[str, Callable[[Workspace], Iterable[str]]] = {
    "ranker": ranker,
    "rounds": rounds,
    "tuned": tuned,
    "demonstrations": demonstrations,
}
STEPS, PICKED = "rounds-steps", "topick-picked"
ON_TOPICS: Mapping[str, Callable[[Path, Path, int, Workspace], Iterable[str]]] = {
    "topick": topick,
    "topick-asked": partial(topick, against=ASKED),
    "topick-core": topick_core,
}
ON_POOLS: Mapping[str, Callable[[Path, Workspace], Iterable[str]]] = {
    "ranker-elsewhere": ranker_elsewhere,
    "ranker-fast": lambda pools, workspace: ranker_elsewhere(pools, workspace, "--rate", 0.01, "--patience", 5),
    "ranker-curated": partial(ranker_elsewhere, curated=True),
    "ranker-further": ranker_further,
    "ranker-parts": ranker_parts,
    "ranker-commonsenseqa": partial(ranker_questions, "commonsenseqa"),
    "ranker-nq": partial(ranker_questions, "nq_open"),
    "rounds-hotpotqa": rounds_hotpotqa,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--llm", required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--pools", type=Path)
    parser.add_argument("--cms", type=Path)
    parser.add_argument("--gsm8k", type=Path)
    parser.add_argument("--picks", help="LLM that picks core topics")
    parser.add_argument("--queries", type=int, default=400, help="of TopicK")
    parser.add_argument("--part", choices=[*PARTS, *ON_POOLS, *ON_TOPICS, STEPS, PICKED], action="append")
    asked = parser.parse_args()
    parts = PARTS | {name: partial(part, asked.pools) for name, part in ON_POOLS.items() if asked.pools}
    if asked.pools and asked.cms:
        parts |= {name: partial(part, asked.pools, asked.cms, asked.queries) for name, part in ON_TOPICS.items()}
    if asked.picks:
        parts[PICKED] = partial(topick_picked, asked.picks)
    if asked.gsm8k:
        parts[STEPS] = partial(rounds_elsewhere, lambda: problems(asked.gsm8k, QUESTIONS), ("--over", "steps"))
    for name in asked.part or parts:
        print(f"\n## {name}, {asked.llm}", flush=True)
        workspace = Workspace(asked.work, name, asked.llm, asked.dtype)
        for told in parts[name](workspace):
            print(f"\n{told}", flush=True)


if __name__ == "__main__":
    main()
