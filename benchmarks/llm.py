"""How much the LLM layer costs on top of the calls themselves. Ratios of one run; nothing leaves this machine.

    python benchmarks/llm.py [--requests 2000] [--delay 0.05] [--concurrency 64]

Part 1 asks a stub server (a process of its own, 20 tokens with log-probabilities per answer) by the bare client and
by the whole layer: cache look-up, budget, adaptive concurrency, retries, and every answer committed to a workspace.
Part 2 scores options under shared demonstrations with a small random model, as one row per option and as a tree on
the cached prefix.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from icl_curate.engine.backends.hf.model import LocalModel
from icl_curate.engine.backends.openai.server import OpenAIServer
from icl_curate.engine.llm import loop, runner
from icl_curate.engine.llm.types import Answer, LLMSettings, Request, Sampling
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Message, Query
from icl_curate.engine.store.workspace import Workspace


def stub(ready: Connection, delay: float) -> None:
    """A server that gives every call the same answer after ``delay`` seconds."""
    tokens = [{"token": "word", "logprob": -0.5, "bytes": None, "top_logprobs": []}] * 20
    choice = {"index": 0, "message": {"content": "word" * 20}, "finish_reason": "stop", "logprobs": {"content": tokens}}
    usage = {"prompt_tokens": 400, "completion_tokens": 20}
    body = json.dumps({"model": "stub", "choices": [choice], "usage": usage}).encode()
    reply = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                if b"content-length:" in head:
                    await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
                await asyncio.sleep(delay)
                writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def requests_of(count: int, name: str) -> list[Request]:
    text = "word " * 300
    return [
        Request(Prompt((Message("user", f"{text} {name} {i}"),), Query("")), sampling=Sampling(max_tokens=20))
        for i in range(count)
    ]


async def bare(url: str, requests: list[Request], concurrency: int) -> None:
    """The client's own method, so many at once, answers thrown away."""
    import openai

    client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    waiting = list(requests)

    async def work() -> None:
        while waiting:
            messages: Any = [{"role": m.role, "content": m.content} for m in waiting.pop().prompt.messages]
            await client.chat.completions.create(
                model="stub", messages=messages, logprobs=True, max_tokens=20, temperature=0
            )

    await asyncio.gather(*(work() for _ in range(concurrency)))
    await client.close()


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def server_part(count: int, delay: float, concurrency: int) -> None:
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=stub, args=(send, delay), daemon=True)
    process.start()
    url = f"http://127.0.0.1:{receive.recv()}/v1"
    settings = LLMSettings(base_url=url, concurrency=concurrency)
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.create(Path(folder) / "w")
        backend = OpenAIServer("stub", settings)
        # warm up both: imports, connections, and the layer's climb to its ceiling
        asyncio.run(bare(url, requests_of(concurrency, "warm"), concurrency))
        runner.ask(workspace, backend, requests_of(8 * concurrency, "warm"), settings)
        alone = seconds(lambda: asyncio.run(bare(url, requests_of(count, "bare"), concurrency)))
        asked = requests_of(count, "layer")
        layer = seconds(lambda: runner.ask(workspace, backend, asked, settings))
        again = seconds(lambda: runner.ask(workspace, backend, asked, settings))
        loop.close(backend)
    process.terminate()
    print(f"{count} calls, {concurrency} at once, server delay {delay * 1000:.0f} ms")
    print(f"  bare client      {count / alone:8.0f} calls/s")
    print(f"  the whole layer  {count / layer:8.0f} calls/s   {alone / layer:.2f} of the bare client")
    print(f"  from the cache   {count / again:8.0f} calls/s")


def local_part(shots: int, queries: int) -> None:
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    with tempfile.TemporaryDirectory() as folder:
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(alphabet))}, merges=[]))
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.ByteLevel()
        transformers.PreTrainedTokenizerFast(tokenizer_object=core).save_pretrained(folder)
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=32000,
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=6,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=4096,
        )
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
        model = LocalModel(folder)
        asyncio.run(model.probe())
        messages = [Message("system", "Answer.")]
        for i in range(shots):
            messages += [Message("user", f"Question: what is the name of thing {i}?"), Message("assistant", "thing")]
        choices = ("yes", "no", "red", "may")
        requests = [
            Request(Prompt((*messages, Message("user", f"Question {i}?")), Query(""), (), choices), score=True)
            for i in range(queries)
        ]
        tokens = model.count_tokens(requests[0].prompt)
        answers: dict[str, list[Any]] = {}

        def score(name: str) -> None:
            answers[name] = asyncio.run(model.ask(requests))

        tree = seconds(lambda: score("tree"))
        model._tree = False
        rows = seconds(lambda: score("rows"))
        pairs = zip(answers["tree"], answers["rows"], strict=True)
        assert all(isinstance(a, Answer) for name in answers for a in answers[name])
        worst = max(
            abs(x - y)
            for a, b in pairs
            for left, right in zip(a.option_logprobs, b.option_logprobs, strict=True)
            for x, y in zip(left, right, strict=True)
        )
    print(f"{queries} queries × {len(choices)} options, {tokens} prompt tokens, {shots} shared demonstrations")
    print(f"  one row per option       {rows:6.2f} s")
    print(f"  tree on cached prefix    {tree:6.2f} s   {rows / tree:.1f} × faster, largest difference {worst:.1e} nats")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--delay", type=float, default=0.05, help="seconds the stub server takes for an answer")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--shots", type=int, default=20)
    parser.add_argument("--queries", type=int, default=6)
    arguments = parser.parse_args()
    server_part(arguments.requests, arguments.delay, arguments.concurrency)
    local_part(arguments.shots, arguments.queries)


if __name__ == "__main__":
    main()
