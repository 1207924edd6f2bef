"""The thread of a local model ends with its owner."""

from __future__ import annotations

import subprocess
import sys

from factories.patience import PATIENCE

LEFT_OPEN = """
import asyncio
from icl_curate.engine.backends.worker import Worker
worker = Worker("a model")
assert asyncio.run(worker.run(lambda: 6 * 7)) == 42
del worker
"""


def test_a_program_that_never_closed_its_model_ends_well() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
