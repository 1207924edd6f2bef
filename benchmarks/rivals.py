"""What people use instead of `curate`, on the same pools, with the same LLM and the same number of calls.

    pip install dspy optuna langchain-core cleanlab
    python benchmarks/rivals.py WORK [--pools POOLS] [--pool support] [--budgets 300] [--seeds 0] [--queries 100]
        [--rivals random-search,mipro,labeled,mmr,similarity,cleanlab,knn]

It needs an environment of its own, because DSPy 3.4 wants an older openai than ours; nothing of ours that runs here
imports openai. `benchmarks/curate.py` measures `curate` itself, its check alone, and random search over halves. WORK
may be the same folder, so that known answers are not computed again.

Each rival's own code decides which demonstrations a query gets, and in which order. The prompt around them is ours, and
the LLM scores the labels in it, for every rival alike: a model of 135M parameters cannot follow the chat format of
DSPy. Inside DSPy's optimisers the program's predictor makes this same call; it is a `dspy.Predict` whose `forward` asks
our client. An identical call is free the second time, as with DSPy's cache and with `curate`. Beyond its budget a call
fails, so that a candidate which the budget does not reach cannot win.

The labels in the prompt are the outputs of the pool that a rival leaves. Only cleanlab prunes; the others choose among
all rows. Their validation queries are those of the random search in `benchmarks/curate.py`, the first 40, or a tenth
of the calls if that is more. What a rival asks when it serves (`KNNFewShot`) is told apart from what its search asks.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from cleanlab.filter import find_label_issues
from curate import POOLS, Bench, Tested
from dspy.teleprompt import BootstrapFewShotWithRandomSearch, KNNFewShot, LabeledFewShot, MIPROv2
from dspy.utils import DummyLM
from icl_curate.engine.base.errors import BudgetError
from icl_curate.engine.curate.tune import served_prompts
from icl_curate.engine.evaluate.statistics import bootstrap_interval
from icl_curate.engine.llm.asking import prompt_budget, prompt_for, request_for
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient
from icl_curate.engine.llm.types import Answer, Request, Result
from icl_curate.engine.pool.answers import is_correct
from icl_curate.engine.pool.records import Demonstration, Query
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.store.decisions import decide
from icl_curate.engine.store.demonstrations import queries as queries_of
from langchain_core.example_selectors import MaxMarginalRelevanceExampleSelector, SemanticSimilarityExampleSelector
from langchain_core.vectorstores import InMemoryVectorStore
from programs import Encoded
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict


class Classifier:
    """The scored call that DSPy's programs make, within a budget."""

    def __init__(self, client: LLMClient, view: PoolView, budget: Budget) -> None:
        self.client, self.view, self.budget = client, view, budget
        self.choices: tuple[str, ...] = ()

    def __call__(self, text: str, demos: Sequence[Mapping[str, str]]) -> str:
        if self.budget.max_calls is not None and self.budget.calls >= self.budget.max_calls:
            raise BudgetError("the budget is used up", "give more calls")
        shots = [Demonstration(-1, "", demo["input"], demo["output"], "") for demo in demos]
        if self.client.settings.order == "best-last":  # as the program lists them, whatever ours does with best first
            shots.reverse()
        request = asked(self.client, self.view, Query(text), shots)
        self.choices = request.prompt.choices
        (result,) = self.client.ask([request], self.budget)
        if not isinstance(result, Answer):
            raise RuntimeError(result.message)
        return result.text


class WithoutInstructions(MIPROv2):
    """MIPROv2 that searches demonstrations only: a model which cannot follow instructions gains nothing from others."""

    def _propose_instructions(self, program: Any, *_: Any, **__: Any) -> dict[int, list[str]]:
        return {i: [predictor.signature.instructions] for i, predictor in enumerate(program.predictors())}


class Rivals(Bench):
    """One pool, one LLM, one seed, all rivals."""

    def run(self) -> None:
        dirty = self.served(self.fresh("dirty"))
        clean_pool = self.fresh("clean")
        decide(clean_pool.workspace, "prune", "demonstration", sorted(self.wrong))
        clean = self.served(clean_pool)
        self.say("as it came, dense", dirty, dirty, clean, 0, 0.0)
        self.say("only true rows, dense", clean, dirty, clean, 0, 0.0)
        for name in self.chosen.rivals:
            for calls in self.chosen.budgets if name in SEARCHES else [0]:
                began = time.perf_counter()
                told, found, used = RIVALS[name](self, calls)
                self.say(told, found, dirty, clean, used, (time.perf_counter() - began) / 60)

    def similarity(self, calls: int) -> tuple[str, Tested, int]:
        return "LangChain SemanticSimilarityExampleSelector", self.selected(SemanticSimilarityExampleSelector), 0

    def mmr(self, calls: int) -> tuple[str, Tested, int]:
        return "LangChain MaxMarginalRelevanceExampleSelector", self.selected(MaxMarginalRelevanceExampleSelector), 0

    def selected(self, selector: Any) -> Tested:
        """By a selector of LangChain, over the pool's encoder; its best example stands next to the query."""
        client = self.fresh("langchain")
        view = PoolView(client.workspace, self.settings)
        (pool,) = view.demonstrations([view.rows.tolist()])
        examples = [{"input": row.input, "output": row.output, "place": str(i)} for i, row in enumerate(pool)]
        chooses = selector.from_examples(
            examples, Encoded(view), InMemoryVectorStore, k=self.k, input_keys=["input"]
        )  # fmt: skip
        queries, requests = self.asked_of(client), []
        for query in queries:
            chosen = chooses.select_examples({"input": query.input})
            requests.append(asked(client, view, query, [pool[int(example["place"])] for example in chosen]))
        return found_of(queries, requests, client.ask(requests, Budget()))

    def cleanlab(self, calls: int) -> tuple[str, Tested, int]:
        """As in cleanlab's tutorials: a logistic regression, five folds, `find_label_issues`; its rows pruned."""
        client = self.fresh("cleanlab")
        view = PoolView(client.workspace, self.settings)
        (pool,) = view.demonstrations([view.rows.tolist()])
        _, labels = np.unique([row.output for row in pool], return_inverse=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # classes with fewer rows than folds
            given = cross_val_predict(
                LogisticRegression(max_iter=400), view.vectors(view.rows), labels, cv=5, method="predict_proba"
            )  # fmt: skip
            issues = find_label_issues(labels, given, n_jobs=1)
        ids = [row.id for row, issue in zip(pool, issues, strict=True) if issue]
        decide(client.workspace, "prune", "demonstration", ids)
        return f"cleanlab find_label_issues ({len(pool) - len(ids)} rows)", self.served(client), 0

    def labeled(self, calls: int) -> tuple[str, Tested, int]:
        def compiled(student: Any, pool: Any, validation: Any) -> Any:
            return LabeledFewShot(k=self.k).compile(student, trainset=pool)

        found, used, _ = self.programmed("labeled", None, compiled)
        return "DSPy LabeledFewShot", found, used

    def knn(self, calls: int, checked: bool = False) -> tuple[str, Tested, int]:
        """As in DSPy's documentation, without a metric; ``checked``: it keeps only what the LLM got right."""
        asked_for = {"metric": agrees} if checked else {}

        def compiled(student: Any, pool: Any, validation: Any) -> Any:
            vectors = dspy.Embedder(self.encoder.encode, caching=False)
            most = min(4, self.k)
            return KNNFewShot(
                self.k, pool, vectors, max_bootstrapped_demos=most, max_labeled_demos=self.k, **asked_for
            ).compile(student)

        found, used, each = self.programmed("knn", None, compiled)
        return f"DSPy KNNFewShot{', metric' if checked else ''} ({each:.1f} calls a query)", found, used

    def random_search_of_dspy(self, calls: int) -> tuple[str, Tested, int]:
        def compiled(student: Any, pool: Any, validation: Any) -> Any:
            search = BootstrapFewShotWithRandomSearch(
                agrees, max_bootstrapped_demos=min(4, self.k), max_labeled_demos=self.k, num_threads=1,
                num_candidate_programs=max(1, calls // len(validation)), max_errors=10**9,
            )  # fmt: skip
            return search.compile(student, trainset=pool, valset=validation)

        found, used, _ = self.programmed("random-search", calls, compiled)
        return f"DSPy BootstrapFewShotWithRandomSearch {calls}", found, used

    def mipro(self, calls: int) -> tuple[str, Tested, int]:
        """Sets of demonstrations as many as in ``auto="light"`` (6), with 1,000 calls or more as in "medium" (12)."""

        def compiled(student: Any, pool: Any, validation: Any) -> Any:
            sets = 6 if calls < 1000 else 12
            search = WithoutInstructions(
                agrees, prompt_model=DummyLM([]), task_model=DummyLM([]), max_bootstrapped_demos=min(4, self.k),
                max_labeled_demos=self.k, auto=None, num_candidates=sets, num_threads=1, max_errors=10**9,
            )  # fmt: skip
            return search.compile(student, trainset=pool, valset=validation, num_trials=3 * sets, minibatch=False)

        found, used, _ = self.programmed("mipro", calls, compiled)
        return f"DSPy MIPROv2, demonstrations only, {calls}", found, used

    def programmed(self, name: str, calls: int | None, compiled: Callable[..., Any]) -> tuple[Tested, int, float]:
        """A program of DSPy, compiled within the calls: what it answers, the calls of its search, those per query."""
        client = self.fresh(f"dspy-{name}-{calls}")
        view = PoolView(client.workspace, self.settings)
        self.encoder = view.encoder
        (pool,) = view.demonstrations([view.rows.tolist()])
        first = queries_of(client.workspace, "validation")[: max(40, (calls or 0) // 10)]
        classify = Classifier(client, view, Budget(calls))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            program = compiled(
                program_of(classify),
                [example(row.input, row.output) for row in pool],
                [example(query.input, query.answers[0]) for query in first],
            )
            used, classify.budget = classify.budget.calls, Budget()
            queries = self.asked_of(client)
            texts = [program(input=query.input).output for query in queries]
        right = [is_correct(text, query.answers, classify.choices) for text, query in zip(texts, queries, strict=True)]
        scores = [f"{each['score']:.1f}" for each in getattr(program, "candidate_programs", ())]
        print(f"    candidates: {', '.join(scores) or 'none'}", flush=True)
        for demo in program.predictors()[0].demos:
            print(f"    {demo['output']}: {demo['input'][:80]}", flush=True)
        return judged(right), used, classify.budget.calls / len(queries)

    def served(self, client: LLMClient) -> Tested:
        """With `dense` and our prompts, on the test queries."""
        queries = self.asked_of(client)
        requests, _ = served_prompts(client, queries, "dense")
        return found_of(queries, requests, client.ask(requests, Budget()))

    def asked_of(self, client: LLMClient) -> list[Query]:
        return list(queries_of(client.workspace, "test", self.chosen.queries))


def program_of(classify: Classifier) -> dspy.Module:
    """A program with one predictor. Its class holds the classifier, because optimisers copy every attribute deeply."""

    class Classify(dspy.Predict):
        def forward(self, **inputs: Any) -> Any:
            answer = {"output": classify(inputs["input"], self.demos)}
            return self._forward_postprocess([answer], self.signature, **inputs)

    class Program(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.predict = Classify("input -> output")

        def forward(self, input: str) -> Any:
            return self.predict(input=input)

    return Program()


def example(text: str, output: str) -> Any:
    return dspy.Example(input=text, output=output).with_inputs("input")


def agrees(gold: Any, answered: Any, trace: Any = None) -> bool:
    """The metric of the optimisers; the answer is always one of the choices."""
    return bool(is_correct(answered.output, [gold.output]))


def asked(client: LLMClient, view: PoolView, query: Query, best_first: Sequence[Demonstration]) -> Request:
    """Our prompt with these demonstrations."""
    settings, capabilities = client.settings, client.capabilities
    limit = prompt_budget(settings, capabilities)
    prompt, _ = prompt_for(query, best_first, view.task, settings, client.backend, limit)
    return request_for(prompt, settings, capabilities)


def found_of(queries: Sequence[Query], requests: Sequence[Request], results: Sequence[Result]) -> Tested:
    return judged([
        isinstance(result, Answer) and is_correct(result.text, query.answers, request.prompt.choices)
        for result, query, request in zip(results, queries, requests, strict=True)
    ])  # fmt: skip


def judged(right: Sequence[float | bool]) -> Tested:
    values = np.array(right, np.float64)
    return Tested(float(values.mean()), bootstrap_interval(values), values > 0)


SEARCHES = ("random-search", "mipro")
"""Those that spend calls on a search."""

RIVALS: Mapping[str, Callable[[Rivals, int], tuple[str, Tested, int]]] = {
    "similarity": Rivals.similarity,
    "mmr": Rivals.mmr,
    "cleanlab": Rivals.cleanlab,
    "labeled": Rivals.labeled,
    "random-search": Rivals.random_search_of_dspy,
    "mipro": Rivals.mipro,
    "knn": Rivals.knn,
    "knn-metric": partial(Rivals.knn, checked=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"type": lambda text: [int(one) for one in text.split(",")]}
    parser.add_argument("work", type=Path)
    parser.add_argument("--pools", type=Path, default=Path())
    parser.add_argument("--pool", choices=list(POOLS), default="support")
    parser.add_argument("--llm", default="smollm2")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--budgets", default=[300], **numbers)
    parser.add_argument("--seeds", default=[0], **numbers)
    parser.add_argument("--rivals", default=list(RIVALS), type=lambda text: text.split(","))
    parser.add_argument("--queries", type=int, default=100)
    chosen = parser.parse_args()
    chosen.work.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.ERROR)  # DSPy logs every call beyond the budget
    print("| pool, seed | what | accuracy | 95 % | gap closed | calls | minutes |")
    for seed in chosen.seeds:
        Rivals(chosen, seed)


if __name__ == "__main__":
    main()
