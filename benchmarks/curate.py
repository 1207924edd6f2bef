"""`curate` at several budgets against its own parts and random search, on pools with planted faults.

    python benchmarks/curate.py WORK [--pools POOLS] [--pool support] [--llm smollm2] [--budgets 300,1000,3000]
        [--seeds 0,1,2] [--without ask,confirm,choose,relabel] [--random 300,1000]
        [--alone 300,1000] [--queries 100]

The pools: ``support`` (the sample pool), ``further`` (the same with 1,000 other test queries), ``banking77`` (15
intents, wrong at random), ``all-intents`` (the same with all 77), ``conventions`` (two of three sources swap labels),
``migration`` (two of three sources use the names of an older scheme), ``labelled`` (by LLMs, rules and a classifier:
labelled.py), ``clean``, and those of hard_labels.py with their faults (``emotions-source`` …). What each row of the
table got right, query by query, is put into WORK/results.jsonl.

Each run starts from the pool as it came; its accuracy is that of the served method on test queries that no decision has
seen. *Gap closed*: the share of the difference between the pool as it came and its true rows, both with `dense`, and
its 95 % interval, from test queries drawn again 10,000 times, the same for all three (paired bootstrap).
``--own`` asks every row's own input (`train rows`) and prunes what is then likely to hurt. ``--verified``: what the
validation queries are worth without this tool, as demonstrations or as teachers of a classifier.
``--alone`` gives the calls to one method instead: `train sources`, then the vote, the posterior of rows, or the ranker
from these answers, and `train topics`, then `topick`.

POOLS holds the data sets that do not come with the project; ``support``, ``further`` and ``migration`` need none.

Answers are kept in WORK across runs and counted anew in each: a run pays for its own calls, though the LLM computes an
answer once.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import pickle
import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import hard_labels
import numpy as np
from evidence import closed, interval, table
from icl_curate.engine.base.progress import Event, Monitor
from icl_curate.engine.checks.active import ActivePool
from icl_curate.engine.checks.ask import RowPlan, RowTraining
from icl_curate.engine.checks.check import check_pool
from icl_curate.engine.checks.evidence import SURE as LIKELY
from icl_curate.engine.checks.evidence import row_evidence
from icl_curate.engine.curate import plan as plans
from icl_curate.engine.curate.curation import RANKER, Curation, CurationPlan
from icl_curate.engine.curate.state import Progress
from icl_curate.engine.curate.tune import served_prompts
from icl_curate.engine.evaluate.compare import Evaluation, EvaluationPlan
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient, client_for
from icl_curate.engine.llm.types import Answer, Backend, Capabilities, Request, Result
from icl_curate.engine.papers.topics.train import TopicPlan, TopicTraining
from icl_curate.engine.pool.answers import is_correct
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.store.decisions import decide, relabel
from icl_curate.engine.store.demonstrations import fetch
from icl_curate.engine.store.demonstrations import queries as queries_of
from icl_curate.engine.store.runs import outcomes
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace
from icl_curate.engine.trials.ranker_training import TrialRanker
from icl_curate.engine.trials.sources import SourcePlan, SourceTraining, tune
from numpy.typing import NDArray
from real_llm import INTENTS, ROWS, noisy_intents, planted, read, write
from sklearn.linear_model import LogisticRegression

import sample_data

Pool = Callable[[Path, Path, int], tuple[IndexPlan, set[str], int]]
SAMPLE = Path(__file__).resolve().parent.parent / "sample_data" / "support"


class Remembered:
    """An LLM whose answers are kept in a file, whichever workspace asked for them."""

    def __init__(self, llm: Backend, path: Path) -> None:
        self.llm = llm
        self.spec, self.local = llm.spec, llm.local
        self.max_in_flight, self.batch_size = llm.max_in_flight, llm.batch_size
        self.kept = sqlite3.connect(path, timeout=600, check_same_thread=False, isolation_level=None)
        self.kept.execute("CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, answer BLOB)")
        self.lock = asyncio.Lock()

    def identity(self) -> Mapping[str, Any]:
        return self.llm.identity()

    def count_tokens(self, prompt: Prompt) -> int:
        return self.llm.count_tokens(prompt)

    async def probe(self) -> Capabilities:
        return await self.llm.probe()

    async def ask(self, requests: Sequence[Request]) -> list[Result]:
        keys = [self._key(request) for request in requests]
        found: dict[bytes, Result] = {}
        for key in keys:
            row = self.kept.execute("SELECT answer FROM answers WHERE key = ?", [key]).fetchone()
            if row:
                found[key] = pickle.loads(row[0])
        missing = [(key, request) for key, request in zip(keys, requests, strict=True) if key not in found]
        if missing:
            answers = await self.llm.ask([request for _, request in missing])
            for (key, _), answer in zip(missing, answers, strict=True):
                found[key] = answer
                if isinstance(answer, Answer):
                    self.kept.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", [key, pickle.dumps(answer)])
        return [found[key] for key in keys]

    async def close(self) -> None:
        self.kept.close()
        await self.llm.close()

    def _key(self, request: Request) -> bytes:
        asked = [json.dumps(self.llm.identity(), sort_keys=True, default=str), request.prompt.text]
        asked += [*request.prompt.choices, str(request.score)]
        return hashlib.blake2b("\0".join(asked).encode(), digest_size=16).digest()


def support(pools: Path, files: Path, seed: int) -> tuple[IndexPlan, set[str], int]:
    """The sample pool, the ids of its rows with a wrong output, and the shots."""
    wrong = {row["id"] for row in read(SAMPLE / "truth_rows.jsonl") if not row["correct"]}
    plan = IndexPlan(
        paths=(str(SAMPLE / "pool" / "*.jsonl"),), validation=(str(SAMPLE / "validation.jsonl"),),
        test=(str(SAMPLE / "test.jsonl"),), encoder=Settings().encoder,
    )  # fmt: skip
    return plan, wrong, 5


def further(pools: Path, files: Path, seed: int) -> tuple[IndexPlan, set[str], int]:
    """The sample pool with 1,000 further test queries of its generator, apart from all that come with the project."""
    plan, wrong, k = support(pools, files, seed)
    path = files / "further.jsonl"
    if not path.exists():
        sample_data.support(sample_data.SEED, apart := sample_data.Apart())
        write(
            path,
            sample_data.clean_rows("further", 1000, apart, sample_data.Dice(sample_data.SEED, "support", "further")),
        )
    return replace(plan, test=(str(path),)), wrong, k


def banking77(pools: Path, files: Path, seed: int) -> tuple[IndexPlan, set[str], int]:
    """15 intents with planted noise, other ones for each seed."""
    return noisy(pools, files / f"banking77-{seed}-files", seed, INTENTS, ROWS)


def all_intents(pools: Path, files: Path, seed: int) -> tuple[IndexPlan, set[str], int]:
    """The same with all 77 intents and six times as many rows."""
    return noisy(pools, files / f"all-intents-{seed}-files", seed, 77, 6 * ROWS)


def noisy(pools: Path, files: Path, seed: int, intents: int, each: int) -> tuple[IndexPlan, set[str], int]:
    noisy_intents(pools, files, seed, intents, each)
    wrong = {row["id"] for row in read(files / "pool.jsonl") if row["output"] != row["truth"]}
    parts = {name: (str(files / f"{name}.jsonl"),) for name in ("validation", "test")}
    return IndexPlan(paths=(str(files / "pool.jsonl"),), **parts, encoder=Settings().encoder), wrong, 4


def conventions(pools: Path, files: Path, seed: int) -> tuple[IndexPlan, set[str], int]:
    """14 intents from three sources, two of which swap the labels of each pair of intents, as by another guideline:
    most labels agree with each other, and are wrong."""
    return _of_sources(pools, files / f"conventions-{seed}-files", seed, (False, True, True))


def labelled(pools: Path, files: Path, seed: int) -> tuple[IndexPlan, set[str], int]:
    """15 intents labelled by LLMs, by rules and by a classifier, as `labelled.py` wrote them into POOLS."""
    folder = pools / "labelled" / str(seed)
    wrong = {row["id"] for row in read(folder / "pool.jsonl") if row["output"] != row["truth"]}
    parts = {name: (str(folder / f"{name}.jsonl"),) for name in ("validation", "test")}
    return IndexPlan(paths=(str(folder / "pool.jsonl"),), **parts, encoder=Settings().encoder), wrong, 4


def clean(pools: Path, files: Path, seed: int) -> tuple[IndexPlan, set[str], int]:
    """The same rows with their own labels: there is nothing to gain."""
    return _of_sources(pools, files / f"clean-{seed}-files", seed, (False, False, False))


def migration(pools: Path, files: Path, seed: int) -> tuple[IndexPlan, set[str], int]:
    """The right rows of the sample pool from three sources, two of which still use the names of the old scheme."""
    files = files / f"migration-{seed}-files"
    old = json.loads((SAMPLE / "truth.json").read_text())["old_scheme"]
    right = {row["id"] for row in read(SAMPLE / "truth_rows.jsonl") if row["correct"]}
    sources = [path for path in sorted((SAMPLE / "pool").glob("*.jsonl")) if path.stem != "crm_export"]  # it repeats
    rows = [row for path in sources for row in read(path) if row["id"] in right]
    random.Random(seed).shuffle(rows)
    pool, third = [], len(rows) // 3
    for i, row in enumerate(rows[: 3 * third]):
        label = row["output"] if i < third else old[row["output"]]
        pool.append(planted(row, f"team {i // third}", label))
    write(files / "pool.jsonl", pool)
    wrong = {row["id"] for row in pool if row["output"] != row["truth"]}
    parts = {name: (str(SAMPLE / f"{name}.jsonl"),) for name in ("validation", "test")}
    return IndexPlan(paths=(str(files / "pool.jsonl"),), **parts, encoder=Settings().encoder), wrong, 5


def hard(name: str, faults: str) -> Pool:
    """720 rows of `hard_labels.py`, whose data POOLS holds, with 100 validation queries."""

    def made(pools: Path, files: Path, seed: int) -> tuple[IndexPlan, set[str], int]:
        files = files / f"{name}-{faults}-{seed}-files"
        rows, asked = hard_labels.drawn(pools, name, faults, seed, 720)
        write(files / "pool.jsonl", rows)
        write(files / "validation.jsonl", islice(asked, hard_labels.QUERIES))
        write(files / "test.jsonl", islice(asked, 400))
        wrong = {row["id"] for row in rows if row["output"] != row["truth"]}
        parts = {part: (str(files / f"{part}.jsonl"),) for part in ("validation", "test")}
        return IndexPlan(paths=(str(files / "pool.jsonl"),), **parts, encoder=Settings().encoder), wrong, 5

    return made


def _of_sources(pools: Path, files: Path, seed: int, swapped: Sequence[bool]) -> tuple[IndexPlan, set[str], int]:
    draw = random.Random(seed)
    rows = {name: read(pools / "banking77" / f"{name}.jsonl") for name in ("train", "validation", "test")}
    labels = draw.sample(sorted({row["output"] for row in rows["train"]}), 14)
    partner = {label: labels[i ^ 1] for i, label in enumerate(labels)}
    mine = [row for row in rows["train"] if row["output"] in labels]
    draw.shuffle(mine)
    pool = [
        planted(row, f"vendor {i}", partner[row["output"]] if swap else row["output"])
        for i, swap in enumerate(swapped)
        for row in mine[200 * i : 200 * (i + 1)]
    ]
    write(files / "pool.jsonl", pool)
    for name in ("validation", "test"):
        kept = [row for row in rows[name] if row["output"] in labels]
        random.Random(f"{seed} {name}").shuffle(kept)  # they come sorted by intent
        write(files / f"{name}.jsonl", ({key: row[key] for key in ("id", "input", "output")} for row in kept))
    wrong = {row["id"] for row in pool if row["output"] != row["truth"]}
    parts = {name: (str(files / f"{name}.jsonl"),) for name in ("validation", "test")}
    return IndexPlan(paths=(str(files / "pool.jsonl"),), **parts, encoder=Settings().encoder), wrong, 4


SURE = 0.5
"""Probability of the suggested label from which `check relabel` gives it: its default."""

POOLS = {
    "support": support, "further": further, "banking77": banking77, "all-intents": all_intents,
    "conventions": conventions, "labelled": labelled, "migration": migration, "clean": clean,
    **{f"{name}-{faults}": hard(name, faults) for name in ("emotions", "opinions") for faults in hard_labels.FAULTS},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tested:
    """Accuracy on test queries, its 95 % interval, and whether each query was right, (n,)."""

    accuracy: float
    ci95: tuple[float, float]
    right: NDArray[np.bool_]


def closed_interval(found: Tested, dirty: Tested, clean: Tested) -> str:
    """95 % of the share of the gap that is closed."""
    n = len(dirty.right)
    drawn = np.random.default_rng(0).integers(0, n, (10_000, n))
    reached, low, high = (each.right[drawn].mean(axis=1) for each in (found, dirty, clean))
    if (high <= low).any():  # as on a pool without wrong rows
        return "–"
    ends = np.quantile((reached - low) / (high - low), [0.025, 0.975])
    return f"{ends[0]:.0%} to {ends[1]:.0%}"


class Unasked(Curation):
    """`curate` without evidence on single rows."""

    def _ask(self, state: Progress, budget: Budget) -> plans.StepDone:
        return plans.StepDone("ask", "left out", found="left out")


class Bench:
    """One pool, one LLM, one seed."""

    def __init__(self, chosen: argparse.Namespace, seed: int) -> None:
        self.chosen, self.seed = chosen, seed
        self.plan, self.wrong, self.k = POOLS[chosen.pool](chosen.pools, chosen.work, seed)
        self.settings = Settings(llm=chosen.llm, dtype=chosen.dtype, k=self.k, seed=seed)
        self.base = chosen.work / f"{chosen.pool}-{seed}"
        if not self.base.exists():
            index_pool(Workspace.create(self.base), self.plan)
        with client_for(Workspace.open(self.base), self.settings) as client:
            self.backend: Backend = Remembered(client.backend, chosen.work / "answers.sqlite")
            self.run()

    def run(self) -> None:
        dirty = self.test(self.fresh("dirty"), "dense")
        clean_pool = self.fresh("clean")
        if self.wrong:
            decide(clean_pool.workspace, "prune", "demonstration", sorted(self.wrong))
        clean = self.test(clean_pool, "dense")
        self.say("as it came, dense", dirty, dirty, clean, 0, 0.0)
        self.say("only true rows, dense", clean, dirty, clean, 0, 0.0)
        checked = self.fresh("checked")
        report = check_pool(ActivePool(checked.workspace, self.settings), ("label",))
        found, outputs = report.accepted(("label",)), report.relabelled(SURE)
        if found:
            decide(checked.workspace, "prune", "demonstration", list(found), list(found.values()))
        self.say("check alone", self.test(checked, "dense"), dirty, clean, 0, 0.0)
        corrected = self.fresh("relabelled")
        if outputs:
            relabel(corrected.workspace, {name: output for name, (output, _) in outputs.items()})
        self.say("check relabel alone", self.test(corrected, "dense"), dirty, clean, 0, 0.0)
        if self.chosen.own:
            self.own(dirty, clean)
        if self.chosen.verified:
            self.verified(dirty, clean)
        for calls in self.chosen.budgets:
            self.curated(calls, "", dirty, clean)
            for left_out in self.chosen.without:
                self.curated(calls, left_out, dirty, clean)
        for calls in self.chosen.random:
            self.random_search(calls, dirty, clean)
        for calls in self.chosen.alone:
            self.alone(calls, dirty, clean)

    def curated(self, calls: int, left_out: str, dirty: Tested, clean: Tested) -> None:
        client = self.fresh(f"curate-{calls}-{left_out}")
        kept, plans.CHOOSE = plans.CHOOSE, 0.0 if left_out == "choose" else plans.CHOOSE
        began = time.perf_counter()
        try:
            plan = CurationPlan(max_calls=calls, propose=left_out == "confirm", relabel=left_out != "relabel")
            done = (Unasked if left_out == "ask" else Curation).prepare(client, plan).ask(Budget(calls))
        finally:
            plans.CHOOSE = kept
        minutes = (time.perf_counter() - began) / 60
        found = self.test(client, done.served)
        name = f"curate {calls}" + (f" without {left_out}" if left_out else "")
        self.say(f"{name} ({done.served}, {done.rows} rows)", found, dirty, clean, done.calls, minutes)
        for step in done.steps:
            print(f"    {step.step}: {step.calls} calls, gain {step.gain}, {step.found}", flush=True)

    def own(self, dirty: Tested, clean: Tested) -> None:
        """The rows that hurt by what the LLM answers to their own inputs, at two levels."""
        asked = self.fresh("own")
        calls = RowTraining.prepare(asked, RowPlan()).ask(Budget()).usage.calls
        for least in (LIKELY, 0.5):
            client = self.fresh(f"own-{least}", asked.workspace.path)
            _suspects(client, least)
            self.say(f"train rows, suspects prune {least}", self.test(client, "dense"), dirty, clean, calls, 0.0)

    def verified(self, dirty: Tested, clean: Tested) -> None:
        """What the validation queries are worth without this tool: as demonstrations, alone and beside the pool, and as
        teachers of a classifier; the rows that have another label than it says are pruned."""
        for name, paths in (("", ()), (" and the pool", self.plan.paths)):
            folder = self.chosen.work / "runs" / f"{self.base.name}-queries{name}".replace(" ", "-")
            shutil.rmtree(folder, ignore_errors=True)
            plan = IndexPlan(paths=(*self.plan.validation, *paths), test=self.plan.test, encoder=self.plan.encoder)
            index_pool(workspace := Workspace.create(folder), plan)
            found = self.test(LLMClient(workspace, self.backend, self.settings, Monitor(_tell)), "dense")
            self.say(f"validation queries{name} as demonstrations", found, dirty, clean, 0, 0.0)
        client = self.fresh("classifier")
        view, queries = PoolView(client.workspace, self.settings), queries_of(client.workspace, "validation")
        rows = fetch(client.workspace, view.rows)
        model = LogisticRegression(C=20.0, max_iter=1000).fit(view.embed(queries), [q.answers[0] for q in queries])
        said = model.predict(view.vectors(view.rows)).tolist()
        ids = [row.id for row, label in zip(rows, said, strict=True) if row.output != label]
        decide(client.workspace, "prune", "demonstration", ids)
        self.say("a classifier of validation queries", self.test(client, "dense"), dirty, clean, 0, 0.0)

    def alone(self, calls: int, dirty: Tested, clean: Tested) -> None:
        """Each trained method with all of the calls, as its own commands use it."""
        trained = self.fresh(f"sources-{calls}")
        queries = len(queries_of(trained.workspace, "validation"))
        limit = min(calls // 10, queries)
        SourceTraining.prepare(trained, SourcePlan(depth=calls // limit, limit=limit)).ask(Budget(calls))
        for name, use in (("tune vote", _by_vote), ("suspects prune", _suspects)):
            client = self.fresh(f"{name}-{calls}", trained.workspace.path)
            use(client)
            self.say(f"train sources, {name}, alone", self.test(client, "dense"), dirty, clean, calls, 0.0)
        TrialRanker.prepare(trained, RANKER).learn()
        self.say("train sources, train ranker, alone", self.test(trained, "ranker"), dirty, clean, calls, 0.0)
        topics = self.fresh(f"topics-{calls}")
        each = max(0, calls // 2 - queries)  # of both, the queries are asked, too
        learnt = TopicTraining.prepare(topics, TopicPlan(sample=each, questions=each)).ask(Budget(calls))
        self.say("train topics, topick, alone", self.test(topics, "topick"), dirty, clean, learnt.usage.calls, 0.0)

    def random_search(self, calls: int, dirty: Tested, clean: Tested) -> None:
        """The random half of the pool that answers most validation queries right, of as many halves as the calls allow
        with 40 queries each (CondAcc's random subsets, Chang and Jia 2023)."""
        client = self.fresh(f"random-{calls}")
        asked = queries_of(client.workspace, "validation")[:40]
        draw = np.random.default_rng([self.seed, calls])
        view = PoolView(client.workspace, self.settings)
        best, best_rows, used = -1.0, view.rows[:0], 0
        while used + len(asked) <= calls:
            left_out = np.sort(draw.choice(view.rows, len(view.rows) // 2, replace=False))
            requests, _ = served_prompts(client, asked, "dense", view.without(left_out))
            results = client.ask(requests, Budget())
            used += len(asked)
            right = np.mean([
                isinstance(r, Answer) and is_correct(r.text, q.answers, p.prompt.choices)
                for r, q, p in zip(results, asked, requests, strict=True)
            ])  # fmt: skip
            if right > best:
                best, best_rows = float(right), left_out
        ids = [row.id for row in fetch(client.workspace, best_rows)]
        decide(client.workspace, "prune", "demonstration", ids)
        self.say(f"random search {calls}", self.test(client, "dense"), dirty, clean, used, 0.0)

    def fresh(self, name: str, like: Path | None = None) -> LLMClient:
        """A client on a copy of the pool as it came, or of the workspace ``like``."""
        path = self.chosen.work / "runs" / f"{self.base.name}-{name}".replace(" ", "-")
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(like or self.base, path)
        return LLMClient(Workspace.open(path), self.backend, self.settings, Monitor(_tell))

    def test(self, client: LLMClient, method: str) -> Tested:
        settings = replace(self.settings, method=method)
        plan = EvaluationPlan(methods=(method,), seeds=1, limit=self.chosen.queries)
        done = Evaluation.prepare(replace(client, settings=settings), plan).ask(Budget())
        by_query = sorted(outcomes(client.workspace, done.run, method), key=lambda each: each.id)
        return Tested(
            done.methods[method].accuracy, done.methods[method].ci95, np.array([q.right for q in by_query], float)
        )

    def say(self, name: str, found: Tested, dirty: Tested, clean: Tested, calls: int, minutes: float) -> None:
        share = f"{closed(found.accuracy, dirty.accuracy, clean.accuracy)} ({closed_interval(found, dirty, clean)})"
        told = {"pool": self.chosen.pool, "seed": self.seed, "llm": self.chosen.llm, "what": name, "calls": calls,
                "right": found.right.astype(int).tolist()}  # fmt: skip
        with (self.chosen.work / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")
        row = [f"{self.chosen.pool} {self.seed}", name, f"{found.accuracy:.3f}", interval(found.ci95), share, calls]
        print(table([], [[*row, f"{minutes:.0f}"]]).splitlines()[-1], flush=True)


def _by_vote(client: LLMClient) -> None:
    """`tune vote`."""
    tuned = tune(client.workspace, client.settings)
    if tuned.worth_it:
        decide(client.workspace, "prune", "source", tuned.pruned)


def _suspects(client: LLMClient, least: float = LIKELY) -> None:
    """`suspects prune`."""
    found = row_evidence(ActivePool(client.workspace, client.settings)).suspects(least)
    if found:
        decide(client.workspace, "prune", "demonstration", [row.id for row in found])


def _tell(event: Event) -> None:
    if event.note:
        print(f"    {event.note}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"type": lambda text: [int(one) for one in text.split(",") if one]}
    parser.add_argument("work", type=Path)
    parser.add_argument("--pools", type=Path, default=Path())
    parser.add_argument("--pool", choices=list(POOLS), default="support")
    parser.add_argument("--llm", default="smollm2")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--budgets", default=[300, 1000, 3000], **numbers)
    parser.add_argument("--seeds", default=[0], **numbers)
    parser.add_argument("--without", default=[], type=lambda text: text.split(","))
    parser.add_argument("--random", default=[], **numbers, help="budgets of the random search over halves")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--verified", action="store_true")
    parser.add_argument("--alone", default=[], **numbers, help="budgets of single methods")
    parser.add_argument("--queries", type=int, default=100)
    chosen = parser.parse_args()
    chosen.work.mkdir(parents=True, exist_ok=True)
    print("| pool, seed | what | accuracy | 95 % | gap closed | calls | minutes |")
    for seed in chosen.seeds:
        Bench(chosen, seed)


if __name__ == "__main__":
    main()
