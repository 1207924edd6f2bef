"""Killing work at its N-th step on the disk, for real: a forked process gets SIGKILL just before that step."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

STEPS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.truncate", "fcntl.flock"}
"""Audit events of what changes the disk or takes a lock."""


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Do ``work`` in a child that dies before its ``step``-th step, from 1; False where it ended before that."""
    child = os.fork()
    if not child:
        left = step

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            if event in STEPS:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    ended = os.waitpid(child, 0)[1]
    if os.WIFEXITED(ended) and os.WEXITSTATUS(ended):
        raise AssertionError(f"the work failed before step {step}")
    return os.WIFSIGNALED(ended)
