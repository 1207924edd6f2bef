"""Prompts for the offline reader, and an encoder that only counts words."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np
from icl_curate.engine.pool.prompts import Prompt
from icl_curate.engine.pool.records import Demonstration, Query, Task
from icl_curate.engine.prompting.template import build_prompt
from numpy.typing import NDArray


def bag_of_words(texts: Sequence[str]) -> NDArray[np.float32]:
    """Every word a random direction of its own: texts are alike as far as they share words."""
    rows = np.full((len(texts), 256), 1e-3)
    for row, text in zip(rows, texts, strict=True):
        for word in re.findall(r"\w+", text.lower()):
            row += np.random.default_rng(zlib.crc32(word.encode())).normal(size=256)
    vectors: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return vectors


LABELS = Task("labels", ("card_arrival", "lost_card", "exchange_rate"))

OPEN = Task("open")

PASSAGE = (
    "Mount Rushmore\nThe sculptor Gutzon Borglum created the design of Mount Rushmore. The work began in 1927."
    " About 400 workers carved the granite.\n\n"
    "Banana bread\nBanana bread is a sweet bread. It was printed in cookbooks in the 1930s."
)


def shot(input: str, output: str, options: tuple[str, ...] = ()) -> Demonstration:
    return Demonstration(0, input, input, output, "pool", options)


def prompt(question: str, *shots: Demonstration, task: Task = LABELS, context: str = "") -> Prompt:
    return build_prompt(Query(question, context=context), shots, task)
