"""Spellings of the last release: flags that chose what a command does, and other names of options. Understood for one
more release, and shown nowhere."""

from __future__ import annotations

import re
from collections.abc import Sequence

OPTIONS = {"limit": "-n", "rows": "--limit"}
"""Other names of options, by parameter: ``-n`` is how many rows are shown, ``--limit`` how many are used."""

FLAGS: dict[str, dict[str, tuple[str, ...]]] = {
    "prune": {
        "--tune": ("tune",),
        "--proposed": ("tune", "apply"),
        "--suspects": ("suspects", "prune"),
        "--misleading": ("flips", "prune"),
        "--undo": ("undo",),
    },
    "demos": {
        "--suspects": ("suspects",),
        "--misleading": ("flips", "--misleading"),
        "--helpful": ("flips", "--helpful"),
        "--flips": ("flips", "show"),
    },
    "check": {
        "--accept": ("check", "prune"),
        "--relabel": ("check", "relabel"),
        "--row": ("suspects", "show"),
        "--skipped": ("skipped",),
    },
    "calibrate": {"--keys": ("calibrate", "keys"), "--runs": ("calibrate", "runs")},
}
"""What does the work of a command with a flag. The value of a flag becomes an argument."""

BELOW = ("query", "keys", "runs")
"""Commands below ``calibrate``, which took a question itself."""


def renewed(words: Sequence[str]) -> list[str]:
    """A command, without options of the program before its name, as it is spelled now."""
    name, *rest = words
    if name == "calibrate":
        rest = ["--split=validation" if word == "--validation" else word for word in rest]
        if rest and rest[0] not in BELOW and not _given(rest, "--split", "--keys", "--runs", "-h", "--help"):
            return [name, "query", *rest]
    if name == "prune" and rest:  # --by vote, or --by=vote
        rest = re.sub(r"(^|\0)--by\0", r"\1--by=", "\0".join(rest)).split("\0")
    if old := _given(rest, *FLAGS.get(name, ())):
        flag, equals, value = old.partition("=")
        vote = ["vote"] if flag == "--tune" and "--by=vote" in rest else []
        others = [value if word is old else word for word in rest if equals or word is not old]
        return [*FLAGS[name][flag], *vote, *(word for word in others if not word.startswith("--by="))]
    return [name, *rest]


def _given(words: Sequence[str], *flags: str) -> str:
    """The first of the words that is one of the flags, with its value if that is joined to it."""
    return next((word for word in words if word.partition("=")[0] in flags), "")
