"""How fast ``hf:`` scores options, beside transformers and llama.cpp with the same weights, precision and threads.

    python benchmarks/throughput.py MODEL.gguf [--dtype bfloat16] [--prompts 12] [--answers TOKENS] [--llama PYTHON]

Prompts of about 160 and 1,200 tokens, different shots in each, with 15 options. ``hf:`` gives the log-probabilities of
all options; `transformers` a script that computes each prompt once and its options on the cache; the `prompts alone` of
both others leave the options out, so they are more than these tools can reach. With ``--answers`` the prompts
are answered instead, and `transformers` is its own `generate` on one padded batch. ``--llama``: the Python of an
environment with llama-cpp-python, which writes the weights into a file of the same precision first. All take turns;
shown is the best of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

if "--part" not in sys.argv:  # the other Python has llama.cpp alone
    from icl_curate.engine.backends.hf.loading import load_description, load_weights
    from icl_curate.engine.backends.hf.model import LocalModel
    from icl_curate.engine.llm.types import Answer, LLMSettings, Request, Sampling
    from icl_curate.engine.pool.prompts import Prompt
    from icl_curate.engine.pool.records import Message, Query

ROUNDS = 3
SHOTS = {160: 2, 1200: 27}
"""Shots of a prompt by about how many tokens it has."""
OPTIONS = 15


def prompts(count: int, shots: int) -> list[tuple[list[tuple[str, str]], str, tuple[str, ...]]]:
    """Shots, text and options of each."""
    data = Path(__file__).resolve().parent.parent / "sample_data" / "support"
    rows = [json.loads(line) for line in (data / "pool" / "helpdesk_team.jsonl").read_text().splitlines()]
    texts = [json.loads(line)["input"] for line in (data / "test.jsonl").read_text().splitlines()]
    options = tuple(sorted({row["output"] for row in rows}))[:OPTIONS]
    shown = [(row["input"], row["output"]) for row in rows if row["output"] in options]
    return [([shown[(i * shots + j) % len(shown)] for j in range(shots)], texts[i], options) for i in range(count)]


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def llama(model: str, dtype: str, asked: str, threads: int) -> None:
    """Seconds of prompts alone: a line each time a line comes in."""
    import ctypes

    import llama_cpp

    same = Path(asked).with_name(f"{dtype}.gguf")
    wanted = llama_cpp.llama_model_quantize_default_params()
    wanted.ftype = {"bfloat16": llama_cpp.LLAMA_FTYPE_MOSTLY_BF16, "float32": llama_cpp.LLAMA_FTYPE_ALL_F32}[dtype]
    wanted.allow_requantize = True
    assert llama_cpp.llama_model_quantize(model.encode(), str(same).encode(), ctypes.byref(wanted)) == 0
    loaded = llama_cpp.Llama(
        str(same), n_ctx=4096, n_batch=4096, n_ubatch=512, n_threads=threads, n_threads_batch=threads, verbose=False
    )
    given = json.loads(Path(asked).read_text())
    print("ready", flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        for ids in given[line.strip()]:
            loaded.reset()
            loaded.eval(ids)
        print(time.perf_counter() - began, flush=True)


class Llama:
    """llama.cpp in the process of another Python."""

    def __init__(self, python: str, model: str, dtype: str, asked: Path, threads: int) -> None:
        command = [python, __file__, model, "--dtype", dtype, "--part", str(asked), str(threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._told() == "ready"

    def _told(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def seconds(self, size: str) -> float:
        assert self._process.stdin
        print(size, file=self._process.stdin, flush=True)
        return float(self._told())

    def close(self) -> None:
        self._process.communicate()


def alone(model: Any, prompt: list[int]) -> Any:
    import torch

    return model(torch.tensor([prompt]), use_cache=True, logits_to_keep=1)


def script(model: Any, prompt: list[int], options: list[list[int]]) -> None:
    """The log-probabilities of options, as a user of transformers would compute them."""
    import torch

    cache, width = alone(model, prompt).past_key_values, max(map(len, options))
    cache.batch_repeat_interleave(len(options))
    rows = torch.tensor([ids + [0] * (width - len(ids)) for ids in options])
    model(rows, past_key_values=cache).logits.log_softmax(-1)


def score(ours: LocalModel, requests: list[Request]) -> None:
    if ours._loaded:
        ours._loaded.prefixes.kept.clear()  # as if nothing had been asked before
    answers = asyncio.run(ours.ask(requests))
    assert all(isinstance(answer, Answer) and (answer.option_logprobs or answer.tokens_out) for answer in answers)


def generate(model: Any, tokens: int, every: list[list[int]]) -> None:
    """Answers by transformers, padded on the left."""
    import torch

    width = max(map(len, every))
    rows = torch.tensor([[0] * (width - len(ids)) + ids for ids in every])
    shown = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in every])
    model.generate(rows, attention_mask=shown, max_new_tokens=tokens, do_sample=False, pad_token_id=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--answers", type=int, metavar="TOKENS", help="Answers of so many tokens at most.")
    parser.add_argument("--llama", help="The Python of an environment with llama-cpp-python.")
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        llama(given.model, given.dtype, given.part[0], int(given.part[1]))
        return
    import torch

    tokeniser, _ = load_description(given.model)
    theirs = load_weights(given.model, given.dtype, "cpu")
    ours = LocalModel(given.model, LLMSettings(dtype=given.dtype))
    sizes: dict[str, tuple[list[Request], list[list[int]], list[list[int]]]] = {}
    for tokens, shots in SHOTS.items():
        asked = [prompt_of(shown, text, options) for shown, text, options in prompts(given.prompts, shots)]
        ids = [tokeniser(ours.rendered(prompt), add_special_tokens=False)["input_ids"] for prompt in asked]
        options = tokeniser(list(asked[0].choices), add_special_tokens=False)["input_ids"]
        sampling = Sampling(max_tokens=given.answers or 1)
        sizes[str(tokens)] = [Request(one, not given.answers, sampling) for one in asked], ids, options
    with tempfile.TemporaryDirectory() as temporary, torch.inference_mode():
        file = Path(temporary) / "prompts.json"
        file.write_text(json.dumps({size: ids for size, (_, ids, _) in sizes.items()}))
        beside = Llama(given.llama, given.model, given.dtype, file, torch.get_num_threads()) if given.llama else None
        score(ours, sizes["160"][0][:1])  # loaded
        for size, (requests, every, options) in sizes.items():
            works: dict[str, Callable[[], object]] = {
                "hf:": partial(score, ours, requests),
                "transformers": partial(each_of, partial(script, theirs, options=options), every),
                "transformers, prompts alone": partial(each_of, partial(alone, theirs), every),
            }
            if given.answers:
                works["transformers"] = partial(generate, theirs, given.answers, every)
            times: dict[str, list[float]] = {}
            for _ in range(ROUNDS):
                for name, work in works.items():
                    times.setdefault(name, []).append(seconds(work))
                if beside:
                    times.setdefault("llama.cpp, prompts alone", []).append(beside.seconds(size))
            mean = sum(map(len, every)) / len(every)
            for name, taken in times.items():
                rate, ratio = len(every) / min(taken), min(taken) / min(times["hf:"])
                print(f"{mean:6.0f} tokens  {name:28}{rate:7.2f} prompts/s  {ratio:6.2f} of hf:'s time", flush=True)
        if beside:
            beside.close()


def prompt_of(shown: list[tuple[str, str]], text: str, options: tuple[str, ...]) -> Prompt:
    turns = [Message(role, said) for pair in shown for role, said in zip(("user", "assistant"), pair, strict=True)]
    return Prompt((*turns, Message("user", text)), Query(""), (), options)


def each_of(work: Callable[[list[int]], object], every: list[list[int]]) -> None:
    for ids in every:
        work(ids)


if __name__ == "__main__":
    main()
