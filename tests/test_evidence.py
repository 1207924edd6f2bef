"""The tables of docs/evidence.md are what its commands say of the recorded answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("part", ["facts", "support"])
def test_the_tables_are_those_of_a_replay(part: str) -> None:
    script = ROOT / "docs" / "make_evidence.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check", "--only", part],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
