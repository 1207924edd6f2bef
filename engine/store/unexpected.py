"""Faults of this program itself: one line for the user, and the traceback in a file of the user's own."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from traceback import format_exception

from ..base.errors import CurateError
from ..base.files import replace_file
from .settings import PREFIX, user_config

TRACEBACK = PREFIX + "TRACEBACK"


def log_file() -> Path:
    """Holds the traceback of the latest fault; beside the user's config file, not in a workspace."""
    return user_config().absolute().with_name("last-error.log")


def unexpected(error: Exception) -> CurateError:
    """The line that tells of it. Its traceback is written to `log_file`, readable by the user only, without the values
    of variables: these may be prompts and keys."""
    path, text = log_file(), "".join(format_exception(error))
    fix = f"run it with {TRACEBACK}=1 and report the traceback"
    if user_config() != Path(os.devnull):  # no config at all; beside it stand devices
        with suppress(OSError):
            replace_file(path, lambda file: file.write(text.encode(errors="backslashreplace")))
            fix = f"report it with the traceback in {path}"
    return CurateError(f"unexpected: {type(error).__name__}: {error}", fix)
