"""Running ``icl-curate`` as a process of its own: stdout, stderr and exit code apart."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import icl_curate

SAMPLE = Path(icl_curate.__file__).parent / "sample_data"


@dataclass(frozen=True)
class Ran:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.out))


class Run(Protocol):
    """What the fixture ``run`` gives."""

    def __call__(self, *arguments: object, stdin: str | None = None, timeout: float = 300) -> Ran: ...


def run_command(*arguments: object, stdin: str | None = None, timeout: float = 300) -> Ran:
    """Run one command to its end."""
    command = [sys.executable, "-c", "from icl_curate.cli import main; main()", *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)
