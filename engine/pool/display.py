"""Making text safe to display: a corpus, a server's reply or a file name may contain characters that move the cursor,
reverse the writing direction or are invisible."""

from __future__ import annotations

import re

_ACTS = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f"  # controls but tab and line feed
    "\x80-\x9f"  # C1 controls: 9B alone opens an escape sequence
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # reorder the text after them
    "\u2028\u2029"  # break the line unintentionally
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"  # are not drawn: soft hyphen, joiner of graphemes, fillers
    "\u180e\u200b\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb"  # have no width
    "\ud800-\udfff"  # surrogates; written in a C locale they are raw bytes
    "\U000e0000-\U000e007f"  # tags: can hide a whole message
    "]"
)
_HALVES = re.compile("[\ud800-\udfff]")
_BREAKS = {0x0A: "⏎", 0x09: " "}


def display_text(text: str) -> str:
    """The text with control characters, direction overrides and invisible characters made visible; line breaks and tabs
    stay.

    For display only: JSON and exports keep the original. Joiners (U+200C, U+200D) stay because scripts and emoji need
    them.
    """
    return _ACTS.sub(_visible, text)


def display_line(text: str, width: int = 0) -> str:
    """As `display_text`, on one line, cut to ``width`` characters with an ellipsis (0: not cut)."""
    head = text if not width or len(text) <= width else text[: width - 1] + "…"
    head = display_text(head)
    return head.translate(_BREAKS) if "\n" in head or "\t" in head else head


def display_json(text: str) -> str:
    """Equivalent JSON in which what `display_text` makes visible is escaped as ``\\uXXXX``: for a terminal."""
    return _ACTS.sub(_escaped, text)


def encodable_json(text: str) -> str:
    """Equivalent JSON in which surrogates are escaped as ``\\uXXXX``: UTF-8 cannot encode them."""
    return text if text.isascii() else _HALVES.sub(_escaped, text)


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return f"<{code:02X}>" if code < 0xA0 else f"<U+{code:04X}>"


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
