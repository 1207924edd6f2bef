"""Names for array types: one element type each, any shape (docstrings give the shapes)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float32s = NDArray[np.float32]
"""Vectors and weights of models."""

Float64s = NDArray[np.float64]
"""Scores, utilities and everything that is summed over many items."""

Int64s = NDArray[np.int64]
"""Row numbers, positions, counts."""

Bools = NDArray[np.bool_]
"""Masks."""
