"""Steps of work over shards, in a module that workers can import. Some die, hang or fail, where a file says so."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from icl_curate.engine.base.progress import SILENT, Event, Monitor
from icl_curate.engine.retrieval.encoder import Local
from icl_curate.engine.shards.shard import Arrays, unpacked


def blocks(count: int, rows: int = 3) -> list[tuple[int, Arrays]]:
    """``count`` different blocks."""
    return [(rows, {"at": np.array([i]), "x": np.arange(rows, dtype=np.float64) / (i + 1)}) for i in range(count)]


def sines(folder: Path, arrays: Arrays, monitor: Monitor) -> Arrays:
    """Something whose bits would show another order; what was computed is noted in the ``folder``.

    A file ``die-I``, ``hang-I`` or ``fail-I`` decides over block I; the first two are gone after the first time.
    """
    at = int(arrays["at"][0])
    with (folder / "computed").open("a") as file:
        file.write(f"{at}\n")
    if (folder / f"fail-{at}").exists():
        raise ValueError(f"block {at} is bad\nand more")
    if (folder / f"die-{at}").exists():
        (folder / f"die-{at}").unlink()
        os.kill(os.getpid(), 9)
    if (folder / f"hang-{at}").exists():
        (folder / f"hang-{at}").rename(folder / f"hung-{at}")
        (folder / "pid").write_text(str(os.getpid()))
        while True:
            time.sleep(1)
    monitor.report(Event("sines", 1, len(arrays["x"])))
    return {"y": np.sin(arrays["x"]).cumsum()}


def always_dies(arrays: Arrays, monitor: Monitor) -> Arrays:
    os._exit(3)


def pids(arrays: Arrays, monitor: Monitor) -> Arrays:
    """The process, and how many GPUs it sees."""
    seen = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    return {"pid": np.array([os.getpid()]), "gpus": np.array([len(seen)])}


def computed(folder: Path) -> list[int]:
    """The blocks that were begun, in this order, repeats included."""
    return [*map(int, (folder / "computed").read_text().split())]


class Crumbs(Local):
    """A cheap encoder: counts of a text's characters, by their code; pickled as it is."""

    name, dimension = "crumbs", 16

    def encode(self, texts: Sequence[str], monitor: Monitor = SILENT) -> np.ndarray:
        counts = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in zip(counts, texts, strict=True):
            np.add.at(row, np.frombuffer(text.encode(), np.uint8) % self.dimension, 1)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)

    def encode_tokens(self, texts: Sequence[str], monitor: Monitor = SILENT) -> list[np.ndarray]:
        raise NotImplementedError


def texts_of(arrays: Arrays, monitor: Monitor) -> Arrays:
    """How long each text is."""
    return {"lengths": np.array([len(text) for text in unpacked(arrays)])}
