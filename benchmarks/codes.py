"""Search by int8 codes against the search of all vectors: how many rows are compared exactly, and the time.

    python benchmarks/codes.py POOL.jsonl... [--queries 1000] [--made 0]

The inputs of the pools are encoded by the default encoder. Shown are, for each pool, for all together and for ``made``
rows between pairs of theirs with noise: rows compared exactly for each query (mean with its 95 % interval, maximum),
whether the results are equal to the bit, the recall that int8 alone would have, and CPU milliseconds a query.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
from icl_curate.engine.retrieval.dense import Codes, DenseIndex, coded
from icl_curate.engine.retrieval.encoder import load_encoder, unit

BLOCK = 2048
COMPARED: list[int] = []
"""Rows whose exact cosine each query took."""


class Counted(DenseIndex):
    def _best(self, near: np.ndarray, query: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        COMPARED.append(len(near))
        return super()._best(near, query, k)


def made(vectors: np.ndarray, rows: int, draw: np.random.Generator) -> np.ndarray:
    """Vectors between pairs of real ones, with noise."""
    found = np.empty((rows, vectors.shape[1]), np.float32)
    for start in range(0, rows, 50_000):
        count = min(50_000, rows - start)
        one, other = (vectors[draw.integers(0, len(vectors), count)] for _ in range(2))
        share = draw.random((count, 1), dtype=np.float32) / 2
        noise = draw.normal(scale=0.015, size=one.shape).astype(np.float32)
        found[start : start + count] = unit((1 - share) * one + share * other + noise)
    return found


def show(name: str, vectors: np.ndarray, queries: int, draw: np.random.Generator) -> None:
    rows = np.arange(len(vectors))
    chosen = draw.choice(len(vectors), min(queries, len(vectors)), replace=False)
    asked, own = vectors[chosen], [[row] for row in chosen.tolist()]
    parts = [coded(vectors[i : i + BLOCK]) for i in range(0, len(vectors), BLOCK)]
    codes = Codes(np.concatenate([part.codes for part in parts]), np.concatenate([part.scales for part in parts]))
    plain, by_codes = DenseIndex(vectors, rows), Counted(vectors, rows, codes)
    by_codes.top(asked[0], 1)  # compiles
    for k in (20, 100):
        COMPARED.clear()
        begun = time.process_time()
        expected = plain.top_many(asked, k, own)
        between = time.process_time()
        found = by_codes.top_many(asked, k, own)
        ended = time.process_time()
        same = all(
            np.array_equal(a, b) for e, f in zip(expected, found, strict=True) for a, b in zip(e, f, strict=True)
        )
        counts = np.array(COMPARED, float)
        spread = 1.96 * counts.std() / len(counts) ** 0.5
        few = asked[:200] @ (codes.codes * codes.scales[:, :1]).T if len(rows) < 200_000 else None
        alone = ""
        if few is not None:
            few[np.arange(len(few)), chosen[: len(few)]] = -2
            near = np.argpartition(-few, k, axis=1)[:, :k]
            hits = [len(np.intersect1d(a, b[0])) / k for a, b in zip(near, expected, strict=False)]
            alone = f"; int8 alone {np.mean(hits):.4f} ± {1.96 * np.std(hits) / len(hits) ** 0.5:.4f}"
        times = [(between - begun) / len(asked) * 1e3, (ended - between) / len(asked) * 1e3]
        print(
            f"{name:28}{len(rows):>10,}{k:>5}{counts.mean():9.1f} ± {spread:.1f}, at most {counts.max():.0f}"
            f"; {'equal' if same else 'DIFFERENT'}{alone}; {times[0]:.1f} and {times[1]:.1f} ms",
            flush=True,
        )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("pools", nargs="+", type=Path)
    arguments.add_argument("--queries", type=int, default=1000)
    arguments.add_argument("--made", type=int, default=0, help="Rows to make from the real ones.")
    given = arguments.parse_args()
    encoder, draw = load_encoder(), np.random.default_rng(0)
    every = []
    print(f"load {os.getloadavg()[0]:.1f}")
    for path in given.pools:
        texts = dict.fromkeys(json.loads(line)["input"] for line in path.read_text().splitlines())
        every.append(encoder.encode([*texts]))
        show(f"{path.parent.name}/{path.name}", every[-1], given.queries, draw)
    joined = np.concatenate(every)
    show("all", joined, given.queries, draw)
    if given.made:
        show("made", made(joined, given.made, draw), min(given.queries, 256), draw)


if __name__ == "__main__":
    main()
