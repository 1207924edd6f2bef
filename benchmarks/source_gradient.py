"""Time and memory of one epoch of source weights: ratio to RAGBooster, scaling to 100 M items, streaming from Parquet.

    python benchmarks/source_gradient.py [--largest 100] [--parquet FOLDER]

The ratio needs the published Rust package (``pip install --no-deps ragbooster``); without it only our own times are
shown. Each time is the best of several runs; figures of one line were measured in turn in one process.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.machinery
import importlib.util
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from icl_curate.engine.papers.sources.estimators import multilinear
from icl_curate.engine.papers.sources.gradient import Accumulator, flat, multilinear_gradient
from icl_curate.engine.trials.lists import RankedLists

SOURCES, K = 1000, 10
BLOCK = 1 << 16  # lists in memory at a time


def published() -> Any:
    """RAGBooster's compiled module alone: its Python front asks for a notebook and a web client."""
    found = importlib.util.find_spec("ragbooster")
    for folder in (found.submodule_search_locations or []) if found else []:
        for path in Path(folder).glob("ragbooster*.so"):
            loader = importlib.machinery.ExtensionFileLoader("ragbooster", str(path))
            spec = importlib.util.spec_from_loader("ragbooster", loader)
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
            return module
    return None


def instance(lists: int, width: int, seed: int = 0) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    items = draw.integers(0, SOURCES, (lists, width), dtype=np.int32)
    return items, draw.integers(0, 2, (lists, width)).astype(np.float32)


def best(work: Callable[[], object], runs: int) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def ratio(lists: int, width: int, module: Any) -> None:
    items, utilities = instance(lists, width)
    weights = np.full(SOURCES, 0.5)
    rows = [
        {"retrieved": row, "utility_contributions": values}
        for row, values in zip(items.tolist(), utilities.tolist(), strict=True)
    ]
    for threads in (1, 2):

        def ours(threads: int = threads) -> object:
            return multilinear_gradient(items, utilities, weights, K, threads=threads)

        def theirs(epochs: int, threads: int = threads) -> Callable[[], object]:
            return lambda: module.learn_importance(rows, k=K, learning_rate=0.1, num_epochs=epochs, n_jobs=threads)

        ours()
        line = f"N={lists:,} x {width}, K={K}, {threads} thread(s): "
        if module is None:
            print(f"{line}{1e3 * best(ours, 10):.2f} ms an epoch; ragbooster is not installed")
            continue
        mine, once, often = [], [], []
        for _ in range(7):  # in turn, so that a busy machine hits both
            mine.append(best(lambda: [ours() for _ in range(10)], 1) / 10)
            once.append(best(theirs(1), 1))
            often.append(best(theirs(11), 1))
        other = (min(often) - min(once)) / 10  # their set-up does not count
        print(f"{line}{1e3 * min(mine):.2f} ms, RAGBooster {1e3 * other:.2f} ms: {other / min(mine):.1f} x")


def agreement(module: Any) -> None:
    """Weights after 50 epochs at the paper's rate 500."""
    items, utilities = instance(2000, 50, seed=1)
    rows = [
        {"retrieved": row, "utility_contributions": values}
        for row, values in zip(items.tolist(), utilities.tolist(), strict=True)
    ]
    theirs = np.array(
        module.learn_importance(rows, k=K, learning_rate=500.0, num_epochs=50, n_jobs=2, grouping=list(range(SOURCES)))
    )
    ids = np.arange(SOURCES, dtype=np.int32)
    offsets = np.arange(2001) * 50
    lists = RankedLists(
        tuple(map(str, ids)), items.ravel(), utilities.ravel().astype(float), items.ravel(), offsets, items.ravel(), ids
    )
    print(f"largest difference after 50 epochs at rate 500: {np.abs(theirs - multilinear(lists, K)).max():.1e}")


def scaling(largest: int) -> None:
    """Each size in a process of its own, so that its peak memory is its own."""
    for millions in [m for m in (1, 3, 10, 30, 100) if m <= largest]:
        for threads in (1, 2):
            subprocess.run([sys.executable, __file__, "--one", str(millions), str(threads)], check=True)


def one_size(millions: int, threads: int) -> None:
    items, utilities = instance(millions * 20_000, 50)
    weights = np.full(SOURCES, 0.5)
    multilinear_gradient(items[:64], utilities[:64], weights, K)
    with contextlib.suppress(OSError):  # Linux: forget the peak that making the instance left behind
        Path("/proc/self/clear_refs").write_text("5")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = best(lambda: multilinear_gradient(items, utilities, weights, K, threads=threads), 2)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    held = (items.nbytes + utilities.nbytes) / 2**20
    print(
        f"{millions:4d} M items in memory ({held:,.0f} MiB), {threads} thread(s): {seconds:.3f} s an epoch, "
        f"{(after - before) / 1024:.0f} MiB more than before, {after / 1024:,.0f} MiB peak of the whole process",
        flush=True,
    )


def streamed(folder: Path, millions: int) -> None:
    """An epoch read from Parquet, peak memory of the whole process included."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"lists-{millions}m.parquet"
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    schema = pa.schema([("items", pa.list_(pa.int32())), ("utilities", pa.list_(pa.float32()))])
    with pq.ParquetWriter(path, schema) as writer:
        for part in range(millions):
            items, utilities = instance(20_000, 50, seed=part)
            offsets = pa.array(np.arange(20_001, dtype=np.int32) * 50)
            columns = [pa.ListArray.from_arrays(offsets, pa.array(a.ravel())) for a in (items, utilities)]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    subprocess.run([sys.executable, __file__, "--stream", str(path)], check=True)
    path.unlink()


def one_stream(path: Path) -> None:
    import pyarrow.parquet as pq

    began, total = time.perf_counter(), Accumulator(np.full(SOURCES, 0.5), K)
    for batch in pq.ParquetFile(path).iter_batches(BLOCK):
        items, utilities = batch.columns
        lengths = items.value_lengths().to_numpy()
        total.add(*flat(items.flatten().to_numpy(), utilities.flatten().to_numpy(), lengths))
    total.gradient()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = path.stat().st_size / 2**20
    print(
        f"{path.name} ({size:,.0f} MiB) streamed: {time.perf_counter() - began:.2f} s an epoch, "
        f"{peak:,.0f} MiB peak of the whole process"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--largest", type=int, default=100, help="millions of items")
    parser.add_argument("--parquet", type=Path, help="folder for a temporary Parquet file")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--stream", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return one_size(int(options.one[0]), int(options.one[1]))
    if options.stream:
        return one_stream(options.stream)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    module = published()
    if module is not None:
        agreement(module)
    ratio(20_000, 50, module)
    ratio(1_000, 235, module)
    scaling(options.largest)
    if options.parquet:
        for millions in [m for m in (10, 100) if m <= options.largest]:
            streamed(options.parquet, millions)
    return None


if __name__ == "__main__":
    main()
