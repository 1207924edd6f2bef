"""What `serve` answers in a second, and how long a client waits for it.

    python benchmarks/serving.py WORKSPACE QUERIES.jsonl [--method dense] [--workers 1] [--connections 1,16,64]

WORKSPACE is indexed (`selection.py --workspace` makes one of 100,000 rows), QUERIES has the texts to ask for, under
``input``. The server is a process of its own; the clients, HTTP/1.1 connections that stay open, share this one and the
same processors. Every query is asked once for each number of connections, after 200 that do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

WARM = 200


@contextmanager
def serving(workspace: Path, *options: str) -> Iterator[int]:
    """The port of a running server."""
    command = [sys.executable, "-m", "icl_curate.cli", "serve", "-w", str(workspace), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if told := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                    yield int(told[1])
                    return
            sys.exit("the server did not start")
        finally:
            process.terminate()


async def asked(port: int, texts: Sequence[str], connections: int) -> list[float]:
    """Seconds for each text, asked over so many connections at once."""
    waiting, took = iter(texts), list[float]()

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for text in waiting:
            body = json.dumps({"query": text}).encode()
            head = f"POST /select HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            begun = time.perf_counter()
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            size = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
            assert answer.startswith(b"HTTP/1.1 200") and size, answer
            await reader.readexactly(int(size[1]))
            took.append(time.perf_counter() - begun)
        writer.close()

    await asyncio.gather(*(client() for _ in range(connections)))
    return took


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("workspace", type=Path)
    arguments.add_argument("queries", type=Path)
    arguments.add_argument("--method", default="dense")
    arguments.add_argument("--workers", default="1")
    arguments.add_argument("--connections", default=[1, 16, 64], type=lambda text: [int(n) for n in text.split(",")])
    arguments.add_argument("--limit", type=int, default=2_000)
    given = arguments.parse_args()
    texts = [json.loads(line)["input"] for line in given.queries.open(encoding="utf-8")][: given.limit + WARM]
    with serving(given.workspace, "--method", given.method, "--workers", given.workers) as port:
        for connections in given.connections:
            asyncio.run(asked(port, texts[:WARM], connections))
            begun = time.perf_counter()
            took = asyncio.run(asked(port, texts[WARM:], connections))
            rate = len(took) / (time.perf_counter() - begun)
            median, tail = np.percentile(took, [50, 99]) * 1e3
            print(
                f"{connections:4d} connections {rate:7,.0f} a second   p50 {median:6.0f} ms   p99 {tail:6.0f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
