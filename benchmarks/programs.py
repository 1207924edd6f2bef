"""A program of DSPy and a chain of LangChain on one dirty pool: curated, and beside what the libraries themselves do.

    pip install dspy langchain-core
    python benchmarks/programs.py DATA WORK --llm hf:FILE.gguf [--library dspy,langchain] [--calls 300] [--queries 100]
        [--searches random-search,mipro,gepa]

DATA is as for tasks.py, of whose labels the pool is made. Everything else is the library's own: the prompt, the call,
the reading of the reply and the figure. The program is a `dspy.Predict` over a signature that names the labels,
measured by `dspy.Evaluate`; the chain is a chat prompt with few-shot examples, the LLM and a `StrOutputParser`, and an
answer is right if it is the label. Both call the same LLM, greedily. The pool is curated by the name of the prompt
(``--template module:object``), and served by `CurateFewShot` and `CurateExampleSelector` (method `dense`).

DSPy's optimisers are stopped after as many calls as `curate` gets; a call beyond fails, so that a candidate that the
budget does not reach cannot win; one that comes to nothing leaves the program as it was. They search with the first 40
validation queries. GEPA, which writes instructions and shows no demonstrations, learns from the other ones and is told
the right label; it counts its answers by itself, and the LLM's proposals come on top. LangChain has selectors only.
WORK keeps the answers: the same command asks nothing twice, and an identical call is counted once.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from types import SimpleNamespace
from typing import Any

import dspy
import numpy as np
from dspy.teleprompt import GEPA, BootstrapFewShotWithRandomSearch, KNNFewShot, LabeledFewShot, MIPROv2
from evidence import Workspace, interval, restore, table
from icl_curate.engine.base.arrays import Float64s
from icl_curate.engine.evaluate.statistics import bootstrap_interval, compare
from icl_curate.engine.llm.budget import Budget
from icl_curate.engine.llm.client import LLMClient, client_for
from icl_curate.engine.llm.types import Answer, Request, Result, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.retrieval.view import PoolView
from icl_curate.engine.store.settings import Settings
from icl_curate.engine.store.workspace import Workspace as Store
from icl_curate.integrations.dspy import CurateFewShot
from icl_curate.integrations.langchain import CurateExampleSelector
from langchain_core.embeddings import Embeddings
from langchain_core.example_selectors import MaxMarginalRelevanceExampleSelector, SemanticSimilarityExampleSelector
from langchain_core.language_models import SimpleChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, FewShotChatMessagePromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from real_llm import Row, read
from tasks import SHOTS, exported, leave_out, planted

ROWS = 300
SEARCHED = 40
"""Validation queries of DSPy's searches."""
ANSWER_TOKENS, THREADS = 256, 8

OWN = {
    "dspy": '''\
import dspy


class Route(dspy.Signature):
    """Find out what a customer of a bank wants, one of: {listed}."""

    message: str = dspy.InputField()
    intent: str = dspy.OutputField()


judged = dspy.Predict(Route)
''',
    "langchain": """\
from langchain_core.prompts import ChatPromptTemplate, FewShotChatMessagePromptTemplate

example = ChatPromptTemplate.from_messages([("human", "{{input}}"), ("ai", "{{output}}")])
shots = FewShotChatMessagePromptTemplate(examples=[], example_prompt=example)
system = "Find out what a customer of a bank wants. Reply with one of these labels, nothing else: {listed}"
judged = ChatPromptTemplate.from_messages([("system", system), shots, ("human", "{{input}}")])
""",
}
"""What a user would have written, by library."""


class OutOfCalls(Exception):
    """The calls are used up."""


class Spoken:
    """The LLM: the turns of a chat to its reply; at most ``most`` different calls, if there is a limit. What threads
    ask at about the same time is answered together."""

    def __init__(self, client: LLMClient) -> None:
        self.client, self.most, self.asked = client, None, set[tuple[Message, ...]]()
        self.counting, self.waiting = Lock(), SimpleQueue[tuple[Request, Future[Result]]]()
        Thread(target=self._answer, daemon=True).start()

    def limited(self, most: int | None) -> None:
        """Count anew."""
        self.most, self.asked = most, set()

    def __call__(self, turns: Sequence[tuple[str, str]], stop: Sequence[str] = ()) -> str:
        messages = tuple(Message(role, content) for role, content in turns)
        with self.counting:
            if self.most is not None and messages not in self.asked and len(self.asked) >= self.most:
                raise OutOfCalls
            self.asked.add(messages)
        answered = Future[Result]()
        prompt = Prompt(messages, Query(turns[-1][1]))
        self.waiting.put((Request(prompt, sampling=Sampling(ANSWER_TOKENS, stop=tuple(stop))), answered))
        result = answered.result()
        if not isinstance(result, Answer):
            raise RuntimeError(result.message)
        return result.reply

    def _answer(self) -> None:
        while True:
            together = [self.waiting.get()]
            time.sleep(0.02)
            while not self.waiting.empty():
                together.append(self.waiting.get())
            results = self.client.ask([request for request, _ in together], Budget())
            for (_, answered), result in zip(together, results, strict=True):
                answered.set_result(result)


class Library:
    """One library on the pool: its prompt ``judged``, and what it serves."""

    name: str

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.judged = import_module(f"judged_{self.name}").judged

    def served(self, workspace: Workspace) -> Float64s:
        """Whether each test query is answered rightly, with the demonstrations of a workspace."""
        raise NotImplementedError

    def own(self) -> Iterator[tuple[str, Float64s, int]]:
        """What the library offers itself: its name, whether each test query is answered rightly, calls to search."""
        raise NotImplementedError


class DSPy(Library):
    name = "dspy"

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        logging.getLogger("dspy").setLevel(logging.CRITICAL)  # it logs every call beyond the limit
        dspy.configure(lm=Local(bench.spoken))
        self.pool, self.validation, self.test = (
            [dspy.Example(message=row["input"], intent=row["output"]).with_inputs("message") for row in rows]
            for rows in (bench.pool, bench.validation, bench.test)
        )

    def served(self, workspace: Workspace) -> Float64s:
        return self.measured(CurateFewShot(workspace.folder, method="dense", k=SHOTS).compile(self.judged))

    def measured(self, program: dspy.Module) -> Float64s:
        judge = dspy.Evaluate(devset=self.test, metric=agrees, num_threads=THREADS, max_errors=10**9)
        return np.array([value for *_, value in judge(program).results], np.float64)

    def own(self) -> Iterator[tuple[str, Float64s, int]]:
        limits = {
            "max_bootstrapped_demos": SHOTS,
            "max_labeled_demos": SHOTS,
            "num_threads": THREADS,
            "max_errors": 10**9,
        }
        calls, searched = self.bench.options.calls, self.validation[:SEARCHED]
        yield "no demonstrations", self.measured(self.judged), 0
        yield "LabeledFewShot", self.measured(LabeledFewShot(k=SHOTS).compile(self.judged, trainset=self.pool)), 0
        vectors = dspy.Embedder(self.bench.view.encoder.encode, caching=False)
        nearest = KNNFewShot(SHOTS, self.pool, vectors, max_bootstrapped_demos=0, max_labeled_demos=SHOTS)
        yield "KNNFewShot, labelled only", self.measured(nearest.compile(self.judged)), 0
        wanted = self.bench.options.searches.split(",")
        if "random-search" in wanted:
            search = BootstrapFewShotWithRandomSearch(agrees, num_candidate_programs=calls // SEARCHED, **limits)
            yield self.found("BootstrapFewShotWithRandomSearch", search, calls, trainset=self.pool, valset=searched)
        if "mipro" in wanted:
            mipro = MIPROv2(agrees, auto=None, num_candidates=6, **limits)
            how = {"num_trials": 18, "minibatch": False}
            yield self.found("MIPROv2", mipro, calls, trainset=self.pool, valset=searched, **how)
        if "gepa" in wanted:
            gepa = GEPA(told, max_metric_calls=calls, reflection_lm=dspy.settings.lm, num_threads=THREADS)
            yield self.found("GEPA", gepa, None, trainset=self.validation[SEARCHED:], valset=searched)

    def found(self, name: str, optimiser: Any, most: int | None, **settings: Any) -> tuple[str, Float64s, int]:
        """What an optimiser compiles within ``most`` calls; None: it counts by itself."""
        spoken = self.bench.spoken
        spoken.limited(most)
        program = self.judged
        with suppress(OutOfCalls):
            program = optimiser.compile(self.judged.deepcopy(), **settings)
        used = len(spoken.asked)
        spoken.limited(None)
        return name, self.measured(program), used


class Local(dspy.BaseLM):
    """The LLM for DSPy."""

    def __init__(self, spoken: Spoken) -> None:
        super().__init__("local", "chat", temperature=0.0, max_tokens=ANSWER_TOKENS, cache=False)
        self.spoken = spoken

    def forward(self, prompt: str | None = None, messages: Any = None, **_: Any) -> Any:
        turns = messages or [{"role": "user", "content": prompt}]
        text = self.spoken([(turn["role"], turn["content"]) for turn in turns])
        choice = SimpleNamespace(message=SimpleNamespace(content=text), finish_reason="stop")
        return SimpleNamespace(choices=[choice], usage={}, model="local")

    def __deepcopy__(self, memo: Any) -> Local:
        return self


def agrees(gold: Any, answered: Any, trace: Any = None) -> bool:
    return bool(gold.intent == answered.intent)


def told(gold: Any, answered: Any, trace: Any = None, name: Any = None, traced: Any = None) -> dspy.Prediction:
    """The figure of `agrees`, with what GEPA reflects on."""
    right = agrees(gold, answered)
    return dspy.Prediction(score=float(right), feedback="Right." if right else f"The right intent is {gold.intent}.")


class LangChain(Library):
    name = "langchain"

    def served(self, workspace: Workspace) -> Float64s:
        return self.measured(CurateExampleSelector(workspace.folder, method="dense", k=SHOTS))

    def measured(self, selector: Any) -> Float64s:
        chain = self.prompt(selector) | Chat(spoken=self.bench.spoken) | StrOutputParser()
        asked = [{"input": row["input"]} for row in self.bench.test]
        said = chain.batch(asked, {"max_concurrency": THREADS})
        return np.array([text.strip() == row["output"] for text, row in zip(said, self.bench.test, strict=True)], float)

    def prompt(self, selector: Any) -> ChatPromptTemplate:
        """The judged prompt with its examples chosen by a selector."""
        system, shots, question = self.judged.messages
        chosen = FewShotChatMessagePromptTemplate(
            example_selector=selector, example_prompt=shots.example_prompt, input_variables=["input"]
        )
        return ChatPromptTemplate.from_messages([system, chosen, question])

    def own(self) -> Iterator[tuple[str, Float64s, int]]:
        examples = [{"input": row["input"], "output": row["output"]} for row in self.bench.pool]
        for selector in (SemanticSimilarityExampleSelector, MaxMarginalRelevanceExampleSelector):
            chooses = selector.from_examples(
                examples, Encoded(self.bench.view), InMemoryVectorStore, k=SHOTS, input_keys=["input"]
            )
            yield selector.__name__, self.measured(chooses), 0


class Chat(SimpleChatModel):
    """The LLM for LangChain."""

    spoken: Any

    def _call(self, messages: Any, stop: list[str] | None = None, run_manager: Any = None, **_: Any) -> str:
        roles = {"human": "user", "ai": "assistant"}
        turns = [(roles.get(turn.type, turn.type), turn.content) for turn in messages]
        return str(self.spoken(turns, stop or ()))

    @property
    def _llm_type(self) -> str:
        return "local"


class Encoded(Embeddings):
    """The pool's own encoder, for LangChain."""

    def __init__(self, view: PoolView) -> None:
        self.view = view

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [vector.tolist() for vector in self.view.encoder.encode(texts)]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class Bench:
    """The dirty pool, its workspaces, and the LLM."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.files = options, options.work / "files"
        self.wrong = planted("labels", options.data, self.files, ROWS, options.queries)
        self.pool = [row for path in sorted((self.files / "pool").glob("*.jsonl")) for row in read(path)]
        self.validation: list[Row] = read(self.files / "validation.jsonl")
        self.test: list[Row] = read(self.files / "test.jsonl")
        code = self.files / "code"
        code.mkdir(exist_ok=True)
        listed = ", ".join(sorted({row["output"] for row in self.pool}))
        for name, text in OWN.items():
            (code / f"judged_{name}.py").write_text(text.format(listed=listed))
        sys.path.insert(0, str(code))
        os.environ["PYTHONPATH"] = str(code)
        self.came, self.truth = self.opened("came"), self.opened("truth")
        self.before = exported(self.came, self.files / "came.jsonl")
        leave_out(self.truth, self.wrong)

    def opened(self, name: str) -> Workspace:
        workspace = Workspace(self.options.work, name, self.options.llm, "auto")
        splits = ("--validation", self.files / "validation.jsonl", "--test", self.files / "test.jsonl")
        workspace.run("index", *sorted((self.files / "pool").glob("*.jsonl")), *splits)
        restore(workspace)
        return workspace

    def run(self) -> None:
        """The table, line by line."""
        settings = Settings(llm=self.options.llm)
        store = Store.open(self.opened("answers").folder)
        with client_for(store, settings) as client:
            self.spoken, self.view = Spoken(client), PoolView(store, settings)
            lines: list[list[object]] = []
            for name in self.options.library.split(","):
                library = LIBRARIES[name](self)
                came = library.served(self.came)

                def told(what: str, right: Float64s, calls: object, came: Float64s = came, name: str = name) -> None:
                    apart = compare(right, came)
                    beside = "" if right is came else f"{apart.difference:+.3f} ({apart.low:+.2f} to {apart.high:+.2f})"
                    lines.append(
                        [name, what, f"{right.mean():.3f} ({interval(bootstrap_interval(right))})", beside, calls]
                    )
                    print(*lines[-1], sep=" | ", flush=True)

                told("the pool as it came, dense", came, 0)
                curated, calls = self.curated(name)
                told(f"curated: {self.ended(curated)}", library.served(curated), calls)
                told("wrong rows left out", library.served(self.truth), 0)
                for what, right, used in library.own():
                    told(what, right, used)
        print(table(["library", "demonstrations", "accuracy", "beside the pool as it came", "calls to search"], lines))

    def curated(self, library: str) -> tuple[Workspace, int]:
        """The pool curated for the library's prompt."""
        workspace = self.opened(f"curated-{library}")
        done = workspace.ask(
            "curate", "-m", "dense", "-k", SHOTS, "--max-calls", self.options.calls,
            "--template", f"judged_{library}:judged", "--yes",
        )  # fmt: skip
        return workspace, done["calls"]

    def ended(self, workspace: Workspace) -> str:
        left = exported(workspace, self.files / "curated.jsonl")
        ended = {row for row, output in self.before.items() if left.get(row) != output}
        return f"{len(ended & self.wrong)} of {len(self.wrong)} wrong rows ended (+{len(ended - self.wrong)})"


LIBRARIES: Mapping[str, Callable[[Bench], Library]] = {"dspy": DSPy, "langchain": LangChain}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--llm", required=True)
    parser.add_argument("--library", default=",".join(LIBRARIES))
    parser.add_argument("--searches", default="random-search,mipro,gepa", help="of DSPy")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--queries", type=int, default=100)
    Bench(parser.parse_args()).run()


if __name__ == "__main__":
    main()
