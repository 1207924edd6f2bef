"""Topics measured: against those released with paper 004, coverage and redundancy of the methods, latency by dense.

    python benchmarks/topics.py WORKSPACE [--cms FOLDER] [--methods bm25,dense,dpp,topick] [--queries 100] [--ablations]

WORKSPACE is indexed and has topics (``icl-curate train topics``). FOLDER holds ``topics.json`` and
``core_topics.jsonl`` (question → topic numbers) as released for CommonsenseQA; its questions come without texts, so
each is matched to the row whose words its topics name best, and taken when the row agrees.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from icl_curate.engine.llm import probing, runner
from icl_curate.engine.llm.asking import backend_for, llm_settings, prompt_for, request_for
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer
from icl_curate.engine.papers.topics import model_file as kept
from icl_curate.engine.papers.topics import predictor
from icl_curate.engine.papers.topics.match import links_of
from icl_curate.engine.papers.topics.report import coverage_curves, required_topics
from icl_curate.engine.papers.topics.train import TopicPlan, TopicTraining, distinctiveness, neighbours, text_of
from icl_curate.engine.pool.answers import is_correct
from icl_curate.engine.pool.words import fold
from icl_curate.engine.retrieval import bm25
from icl_curate.engine.retrieval.artefacts import encode_for_reader
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.select.methods import METHODS, Pick
from icl_curate.engine.store.demonstrations import fetch, queries, task_of
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace

SETTINGS = Settings()


def released(view: PoolView, folder: Path) -> None:
    """The predictor on the released topics: held-out quality, beside ranking by the names' cosine."""
    names = json.loads((folder / "topics.json").read_text(encoding="utf-8"))
    core = [json.loads(line)["topic_ids"] for line in (folder / "core_topics.jsonl").open(encoding="utf-8")]
    shots = fetch(view.workspace, view.rows)
    texts = [fold(text_of(shot.input, shot.options, shot.output)) for shot in shots]
    index = bm25.build(np.arange(len(texts)), texts)
    said = [fold(" ".join(names[t] for t in topics)) for topics in core]
    backwards = bm25.build(np.arange(len(said)), said)
    matched = {}
    for question, text in enumerate(said):
        (row,), _ = index.top(text, 1)
        if backwards.top(texts[row], 1)[0][0] == question:
            matched[int(row)] = question
    places = np.array(sorted(matched))
    owner = np.repeat(np.arange(len(places)), [len(core[matched[p]]) for p in places.tolist()])
    topics = np.array([t for p in places.tolist() for t in core[matched[p]]])
    links = links_of(len(places), owner, topics, np.ones(len(topics), np.float32))
    vectors = view.vectors(view.rows)
    near = neighbours(vectors[places], vectors, places)
    soft = distinctiveness(index, names, links, places, near)
    name_vectors = view.encoder.encode(names)
    held_out = np.random.default_rng(0).random(len(places)) < 0.1
    judged = np.flatnonzero(held_out)
    rates = (np.bincount(topics, minlength=len(names)) / len(places)).astype(np.float32)
    print(f"released questions matched: {len(places)} of {len(core)}; topics {len(names)}")
    by_name = predictor.ranking_quality(lambda at: vectors[places[at]] @ name_vectors.T, links, judged)
    print("  ranked by cosine with the names:", by_name)
    for label, targets in (("soft targets", soft), ("binary targets", links)):
        start = predictor.started(name_vectors, rates)
        trained, history = predictor.fit(start, vectors[places], targets, held_out)
        print(f"  {label}, {len(history)} epochs:", predictor.quality(trained, vectors[places], links, judged))
    model = kept.load(view.workspace, kept.latest(view.workspace))
    ours, theirs = {fold(name) for name in model.names}, {fold(name) for name in names}
    used = {fold(names[t]) for t in topics.tolist()}
    weight = float(np.mean([fold(names[t]) in ours for t in topics.tolist()]))
    print(f"  mined {len(ours)}: {len(ours & theirs)} of their {len(theirs)} topics, {len(ours & used)} of the "
          f"{len(used)} in use, {weight:.2f} of their core links")  # fmt: skip


def curves(view: PoolView, methods: list[str], count: int, k: int = 10) -> None:
    """Figure 4: required topics covered and redundancy at 1..k shots."""
    asked = queries(view.workspace, "test", count)
    required = required_topics(view, asked)
    for method in methods:
        picks = [[pick.row for pick in chosen] for chosen in METHODS[method].choose(view, asked, k, 0)]
        coverage, redundancy = coverage_curves(view, required, picks)
        print(f"  {method:8} coverage {coverage.round(2).tolist()}")
        print(f"  {'':8} redundancy {redundancy.round(2).tolist()}")


def ablations(view: PoolView, count: int, k: int) -> None:
    """Table 3 with the set LLM: test accuracy of every variant.

    Trains once more, without soft labels, in the workspace itself: give it a copy.
    """
    asked = queries(view.workspace, "test", count)
    with backend_for(SETTINGS, encode_for_reader(view.workspace, SETTINGS)) as backend:
        capabilities = probing.probe(view.workspace, backend)

        def accuracy(picks: list[list[Pick]]) -> float:
            rows = [[chosen.row for chosen in each] for each in picks]
            shots = {shot.row: shot for shot in fetch(view.workspace, sorted({r for each in rows for r in each}))}
            prompts = [
                prompt_for(query, [shots[row] for row in each], task, SETTINGS)[0]
                for query, each in zip(asked, rows, strict=True)
            ]
            requests = [request_for(prompt, SETTINGS, capabilities) for prompt in prompts]
            results = runner.ask(view.workspace, backend, requests, llm_settings(SETTINGS))
            right = [
                isinstance(result, Answer) and is_correct(result.text, query.answers, task.choices(query))
                for query, result in zip(asked, results, strict=True)
            ]
            return float(np.mean(right))

        task = task_of(view.workspace)
        TopicTraining.prepare(LLMClient(view.workspace, backend, SETTINGS), TopicPlan(soft=False)).ask(Budget())
        for name, method in METHODS.items():
            if method.trained == "train-topics":
                print(f"  {name:20} {accuracy(method.choose(PoolView(view.workspace, SETTINGS), asked, k, 0)):.3f}")


def latency(view: PoolView, count: int) -> None:
    """Median milliseconds of one query in a warm process, in turns with dense."""
    asked = queries(view.workspace, "test", count)
    if not asked:
        asked = [shot.as_query() for shot in fetch(view.workspace, view.rows[:: max(len(view.rows) // count, 1)])]
    spent: dict[str, list[float]] = {"dense": [], "topick": []}
    for query in asked:
        for method, times in spent.items():
            started = time.perf_counter()
            METHODS[method].choose(view, [query], 5, 0)
            times.append(time.perf_counter() - started)
    medians = {method: 1000 * float(np.median(times[1:])) for method, times in spent.items()}
    print(f"  {len(view.rows)} rows: {medians}, topick / dense {medians['topick'] / medians['dense']:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--cms", type=Path)
    parser.add_argument("--ablations", action="store_true")
    parser.add_argument("-k", "--shots", type=int, default=8)
    parser.add_argument("--methods", default="bm25,dense,dpp,topick")
    parser.add_argument("--queries", type=int, default=100)
    given = parser.parse_args()
    view = PoolView(Workspace.open(given.workspace), SETTINGS)
    print("latency")
    latency(view, given.queries)
    print("coverage and redundancy")
    curves(view, given.methods.split(","), given.queries)
    if given.ablations:
        print("ablations")
        ablations(view, given.queries, given.shots)
    if given.cms:
        print("released topics")
        released(view, given.cms)


if __name__ == "__main__":
    main()
