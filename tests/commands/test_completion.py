"""Completion in a shell, by the protocol that its script speaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ASKED = """
import sys
from icl_curate.cli import run
try:
    run()
finally:
    sys.stderr.write("\\n".join(sys.modules))
"""

COMPLETED = {
    "evaluate --split ": {"validation", "test"},
    "evaluate --methods ": {"zero", "bm25", "topick", "rerank"},
    "evaluate --methods bm25,de": {"bm25,dense"},
    "export x --format ": {"jsonl", "hf", "calibration"},
    "tr": {"train"},
    "check ": {"prune", "relabel"},
    "calibrate --li": {"--limit"},
}


@pytest.mark.parametrize("line", COMPLETED)
def test_a_shell_completes_commands_options_and_values(line: str, tmp_path: Path) -> None:
    words = ["icl-curate", *line.split(" ")]
    asked = {"_ICL_CURATE_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    own = {"HOME": str(tmp_path), "ICL_CURATE_CONFIG": str(tmp_path / "config.toml")}
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        cwd=tmp_path,
        env=os.environ | own | asked,
        capture_output=True,
        text=True,
        check=False,
    )
    given = set(done.stdout.split())
    assert COMPLETED[line] <= given, done.stderr
    assert all(word.startswith(words[-1]) for word in given)
    loaded = set(done.stderr.split())
    assert "icl_curate.cli" in loaded and not loaded & {"torch", "numba", "transformers", "scipy", "textual", "openai"}
    assert list(tmp_path.iterdir()) == []
