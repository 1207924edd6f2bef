"""A process that waits for the next command of a workspace, so that it begins at once.

It has imported what commands import, and loaded the LLM that the settings name. It carries out one command and ends
with it: a job in it has the same lock, session, log and end as one in a process that was started for it, nothing of one
command is left for the next, and killing it loses what killing any job loses.

It is a child of the program that keeps it ready, which reaches it by a pair of connected sockets that have no name, so
nobody else can. It ends with that program, however that ends, and after `IDLE` seconds without a command. It is not
used for a command with another environment, nor after the installation has changed.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import IO

from . import OBSERVED, STANDBY, VARIABLE

IDLE = 600.0
"""Seconds without a command after which it ends."""

ANSWER = 0.5
"""Seconds that it has to take a command, while a user may be waiting; then the command gets a process of its own."""

TAKEN = b"+"
_FILES = 3
"""At most so many files come with a command: its stdout, its stderr, and the lock of its job."""


class Standby:
    """At most one waiting process. Thread-safe."""

    def __init__(self, program: Sequence[str], environment: Callable[[], Mapping[str, str]]) -> None:
        """``program`` is the command line that becomes the process, ``environment`` what it would have now."""
        self._program, self._environment = program, environment
        self._lock = threading.Lock()
        self._waiting: tuple[Popen[bytes], socket.socket, dict[str, str]] | None = None
        self.used = False
        """A command was begun, whether or not a process waited for it."""
        self._closed = False

    def prepare(self) -> None:
        """Start it, unless it waits already."""
        own = dict(self._environment())
        with self._lock:
            waits = self._waiting is not None and self._waiting[0].poll() is None
            if waits or self._closed or not hasattr(socket, "send_fds"):
                return
            self._end()
            ours, theirs = socket.socketpair()
            with theirs, suppress(OSError):  # no process, no gain
                process = Popen(
                    self._program,
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=DEVNULL,
                    env=own | {STANDBY: str(theirs.fileno())},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
                self._waiting = process, ours, own

    def take(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        out: IO[bytes],
        err: IO[bytes],
        directory: str,
        lock: int | None = None,
    ) -> Popen[bytes] | None:
        """Have it become the process of ``icl-curate WORDS``; None if none waits for such a command: nothing was begun.
        It inherits the ``lock``, if there is one."""
        with self._lock:
            self.used = True
            if self._waiting is None:
                return None
            process, ours, own = self._waiting
            if {name: value for name, value in environment.items() if name not in (OBSERVED, VARIABLE)} == own:
                told = {"words": list(words), "environment": dict(environment), "directory": directory}
                text = json.dumps(told).encode()
                message = len(text).to_bytes(8, "big") + text
                ours.settimeout(ANSWER)
                with suppress(OSError):  # it has ended
                    sent = socket.send_fds(
                        ours, [message], [file for file in (out.fileno(), err.fileno(), lock) if file]
                    )
                    ours.sendall(message[sent:])
                    if ours.recv(1) == TAKEN:
                        ours.close()
                        self._waiting = None
                        return process
            self._end()
        return None

    def close(self) -> None:
        """End the waiting process; there will be no other."""
        with self._lock:
            self._closed = True
            self._end()

    def _end(self) -> None:
        if self._waiting is not None:
            process, ours, _ = self._waiting
            self._waiting = None
            process.kill()  # it has begun nothing, or what it began in this moment begins again
            process.wait()
            ours.close()


def become(steps: Iterator[None], command: Callable[[], object]) -> Callable[[], object]:
    """In the waiting process: take the ``steps`` that prepare it in a thread until words come, then take these for
    `sys.argv`. Returns the ``command`` as it is to be called, which is after the step that is being taken. Ends the
    process if no words come, or if it cannot carry them out."""
    since, parent = time.time(), socket.socket(fileno=int(os.environ.pop(STANDBY)))
    wanted = threading.Event()

    def prepare() -> None:
        while not wanted.is_set() and next(steps, wanted) is None:
            pass

    preparing = threading.Thread(target=prepare, daemon=True)
    preparing.start()
    with parent:
        parent.settimeout(IDLE)
        try:
            words, environment, directory, files = _received(parent)
            os.chdir(directory)
            if _changed_since(since):
                os._exit(0)
            sys.argv[1:] = words
            os.environ.update(environment)  # but for a few variables it is the same one
            for number, file in enumerate(files[:2], 1):
                os.dup2(file, number)
                os.close(file)
            wanted.set()
            parent.sendall(TAKEN)
        except (OSError, ValueError):
            os._exit(0)

    def prepared() -> object:
        preparing.join()
        return command()

    return prepared


def _received(parent: socket.socket) -> tuple[list[str], dict[str, str], str, list[int]]:
    """Words, environment, directory and files of the command; the third file is a lock, which stays open. Raises
    `OSError` or `ValueError` if the parent has ended, or time is over."""
    message, files, *_ = socket.recv_fds(parent, 1 << 16, _FILES)
    size = int.from_bytes(message[:8], "big")
    text = message[8:]
    while len(text) < size and (more := parent.recv(1 << 16)):
        text += more
    told = json.loads(text)
    return told["words"], told["environment"], told["directory"], files


def _changed_since(moment: float) -> bool:
    """Whether a module of this package that is loaded has been changed on the disk."""
    package = __package__.partition(".")[0]
    paths = [
        Path(file)
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == package and (file := getattr(module, "__file__", None))
    ]
    return any(not path.exists() or path.stat().st_mtime > moment for path in paths)
