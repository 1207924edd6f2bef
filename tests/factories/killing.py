"""Killing work for real, in a forked process, which need not import anything: whenever one likes, or just before its
N-th step on the disk."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

STEPS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.truncate", "fcntl.flock"}
"""Audit events of what changes the disk or takes a lock."""


def begun(work: Callable[[], object]) -> int:
    """Begin ``work`` in a child; its process id, for `kill`."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


def kill(child: int, over: bool = False) -> None:
    """Kill what `begun` began, wherever it is; fails if it is over already, unless it may be."""
    ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert not ended or (over and os.waitstatus_to_exitcode(status) == 0), "the work was over before it was killed"


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
