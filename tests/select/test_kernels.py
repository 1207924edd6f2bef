"""Picks do not depend on the kernels of the processor: rows equally good up to the last bits go by number."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PICKS = """
import json
import numpy as np
from icl_curate.engine.trials.policy import Candidates, Policy
from icl_curate.engine.trials.policy import top_candidates
from icl_curate.engine.retrieval.dense import DenseIndex
from icl_curate.engine.select.methods import dpp, set_bsr
from icl_curate.engine.retrieval.encoder import unit
from icl_curate.engine.base.arrays import step_of
from icl_curate.engine.papers.topics.predictor import Predictor
from icl_curate.engine.papers.topics.selection import greedy

# the same numbers in another order: against a query of equal parts all cosines are one number, summed differently
draw, d = np.random.default_rng(0), 384
query = np.full(d, d**-0.5, np.float32)
one = draw.normal(size=d)
rows = unit(np.stack([one, *(draw.permutation(one) for _ in range(39))]).astype(np.float32))
rows *= np.sign(rows[0] @ query)
products = rows @ query
tokens = [row[None] for row in rows]
policy = Policy(np.full((8, d), d**-0.5), np.zeros(8))
candidates = Candidates(query[None], rows[None], np.ones((1, len(rows)), np.bool_))
none = np.zeros((d, d), np.float32), np.zeros(d, np.float32)
predictor = Predictor(*none, *none, np.outer([9, 5, 3], query).astype(np.float32), np.zeros(3, np.float32))
print(json.dumps({
    "dense": DenseIndex(rows, np.arange(len(rows))).top(query, 5)[0].tolist(),
    "dpp": dpp(products, np.eye(len(rows)), 5, step=step_of(d)).order.tolist(),
    "set-bsr": set_bsr(query[None], tokens, 5).order.tolist(),
    "ranker": top_candidates(policy.scores(candidates), candidates.present, 5, policy.steps(candidates))[0].tolist(),
    "topick": [
        at for at, *_ in greedy(predictor, np.ones(3, np.float32), rows, products.astype(np.float64), 1.0, 5)
    ],
    "bits": np.unique(products).size,
}))
"""


@pytest.mark.parametrize("kernels", ["Haswell", "Nehalem"])
def test_what_only_the_last_bits_tell_apart_goes_by_row(kernels: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PICKS],
        env=os.environ | {"OPENBLAS_CORETYPE": kernels}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    picks = json.loads(ran.stdout)
    assert picks.pop("bits") > 1  # the scores do differ
    assert picks == {method: [0, 1, 2, 3, 4] for method in ("dense", "dpp", "set-bsr", "ranker", "topick")}
