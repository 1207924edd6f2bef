"""The inverted index against rank-bm25: same scores, same order, how much faster.

    python benchmarks/bm25.py [POOL.jsonl ...] [--documents 100000] [--queries 200]

Texts come from the field ``input`` of the pools given; halves of two texts are joined until there are enough. Without
a pool, words are drawn from a Zipf distribution.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from icl_curate.engine.retrieval import bm25
from icl_curate.engine.retrieval.dense import DenseIndex
from icl_curate.engine.retrieval.encoder import unit
from rank_bm25 import BM25Okapi

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def texts_of(pools: list[Path], wanted: int) -> list[str]:
    rng = np.random.default_rng(0)
    texts = [json.loads(line)["input"] for pool in pools for line in pool.open(encoding="utf-8")]
    if not texts:
        return [" ".join(f"w{word}" for word in rng.zipf(1.2, rng.integers(8, 40))) for _ in range(wanted)]
    halves = [text.split() for text in texts]
    while len(texts) < wanted:
        left, right = (halves[i] for i in rng.integers(0, len(halves), 2))
        texts.append(" ".join(left[: len(left) // 2] + right[len(right) // 2 :]))
    return texts[:wanted]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pools", nargs="*", type=Path)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    options = parser.parse_args()

    n, rng = options.documents, np.random.default_rng(1)
    texts = texts_of(options.pools, n)
    queries = [texts[i] for i in rng.integers(0, n, options.queries)]
    index, build = timed(lambda: bm25.build(np.arange(n), texts))
    okapi, okapi_build = timed(lambda: BM25Okapi([bm25.tokenise(text) for text in texts]))
    print(f"build of {n:,} documents: {build:.2f} s, rank-bm25 {okapi_build:.2f} s")

    asked = queries[:10]
    expected, okapi_time = timed(lambda: [okapi.get_scores(bm25.tokenise(query)) for query in asked])
    for query, scores in zip(asked, expected, strict=True):
        assert (index.scores(query) == scores).all(), "scores differ"
        best = np.lexsort((np.arange(n), -scores))[:20]
        assert (index.top(query, 20)[0] == best).all(), "order differs"
    per_query = okapi_time / len(asked)
    for label in ("first time asked", "asked again"):
        times = [timed(lambda query=query: index.top(query, 20))[1] for query in queries]  # type: ignore[misc]
        median = float(np.median(times))
        print(
            f"top 20, {label}: median {median * 1e3:.2f} ms, p95 {np.quantile(times, 0.95) * 1e3:.2f} ms;"
            f" rank-bm25 get_scores {per_query * 1e3:.0f} ms, ratio {per_query / median:.0f}"
        )

    active = rng.random(n) < 0.8
    view, restricting = timed(lambda: index.restricted(active))
    left = BM25Okapi([bm25.tokenise(text) for text, keep in zip(texts, active, strict=True) if keep])
    assert (view.scores(queries[0]) == left.get_scores(bm25.tokenise(queries[0]))).all(), "restricted scores differ"
    print(f"restricted to 80 %: {restricting * 1e3:.0f} ms, scores equal rank-bm25's on the rest")
    with tempfile.TemporaryDirectory() as folder:
        _, saving = timed(lambda: index.save(Path(folder)))
        loaded, loading = timed(lambda: bm25.load(Path(folder)))
        _, first = timed(lambda: loaded.top(queries[0], 20))
        size = (Path(folder) / bm25.FILE).stat().st_size
    print(
        f"saved in {saving * 1e3:.0f} ms ({size / 1e6:.0f} MB), opened in {loading * 1e3:.1f} ms,"
        f" first query {first * 1e3:.1f} ms"
    )

    dense = DenseIndex(unit(rng.normal(size=(n, 384)).astype(np.float32)), np.arange(n))
    vectors = unit(rng.normal(size=(64, 384)).astype(np.float32))
    times = [timed(lambda vector=vector: dense.top(vector, 20))[1] for vector in vectors]  # type: ignore[misc]
    _, batch = timed(lambda: dense.top_many(vectors, 20))
    print(f"exact cosine top 20 of {n:,} x 384: median {np.median(times) * 1e3:.1f} ms alone", end=", ")
    print(f"{batch / len(vectors) * 1e3:.1f} ms a query in a batch of {len(vectors)}")


if __name__ == "__main__":
    main()
