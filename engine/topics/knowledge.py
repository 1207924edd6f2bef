"""What the LLM knows of each topic, from its answers without demonstrations (paper 004, eq. 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base.arrays import Bools, Float32s
from .predictor import Predictor

CLIP = (0.1, 0.9)
"""Bounds of knowledge (those of the released code): eq. 6 divides by it."""

PRIOR = 4.0
"""Weight of the mean over all topics in the shrinkage, in observations."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """t_LM (``share``) of each topic and Σ t̂_d,t over the questions asked (``observations``), both (t,)."""

    share: Float32s
    observations: Float32s


def topical_knowledge(predictor: Predictor, vectors: Float32s, right: Bools, prior: float = PRIOR) -> Knowledge:
    """Eq. 5 over questions with embeddings ``vectors`` (n, d) that the LLM answered right or wrong, (n,).

    Shrunk towards the overall accuracy with the weight of ``prior`` observations (0: the equation as printed), and
    clipped to `CLIP`. Without questions the knowledge of every topic is one half.
    """
    weighted = np.zeros(predictor.topics)
    total = np.zeros(predictor.topics)
    for span, predicted in predictor.blocks(vectors):
        total += predicted.sum(axis=0, dtype=np.float64)
        weighted += predicted[right[span]].sum(axis=0, dtype=np.float64)
    mean = float(right.mean()) if len(right) else 0.5
    share = (weighted + prior * mean) / np.maximum(total + prior, 1e-12)
    return Knowledge(np.clip(share, *CLIP).astype(np.float32), total.astype(np.float32))
