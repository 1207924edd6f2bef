"""The page "Choose a metric": its examples can be pasted in an empty folder, and say what they are said to say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import icl_curate
import pytest
from factories.commands import Run

PAGE = Path(icl_curate.__file__).parent / "docs" / "how-to" / "metric.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="an installed package brings no docs")


def test_its_examples_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    metrics: list[str] = []
    for block in re.findall(r"```bash\n(cat .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        for name, text in re.findall(r"cat > (\S+) <<'END'\n(.*?\n)END\n", block, re.DOTALL):
            (tmp_path / name).write_text(text)
        for line in re.findall(r"(?m)^(?:PYTHONPATH=\. )?icl-curate (.*)", block):
            if "MODEL" in line:  # a server of one's own
                continue
            done = run(*shlex.split(line), "--json")
            assert done.code == 0, (line, done.err)
            if line.startswith("evaluate"):
                assert done.json["methods"]["dense"]["shots"] == 2, line
            metrics += [done.json["metric"]] if line.startswith("evaluate") else []
    assert metrics == ["accuracy", "number@0.01", "json-f1@ignore=id", "entities", "rouge-l", "own_metrics:runs"]
