"""Making text safe to show: a corpus, a server's reply or a file's name may hold bytes that move the cursor, turn the
writing round, or hide."""

from __future__ import annotations

_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_VISIBLE[0x7F] = "␡"
_VISIBLE |= {code: f"<{code:02X}>" for code in range(0x80, 0xA0)}  # C1 controls: 9B alone opens an escape sequence
_VISIBLE |= {
    code: f"<U+{code:04X}>"
    for code in (
        *(0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),  # reorder what follows them
        *(0x2028, 0x2029),  # break the line where nobody meant it
        *(0x180E, 0x200B, *range(0x2060, 0x2065), *range(0x206A, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC)),  # no width
        *range(0xE0000, 0xE0080),  # tags: a whole message that is not seen
        *range(0xD800, 0xE000),  # halves of a character; written to a C locale they are raw bytes
    )
}
_ONE_LINE = _VISIBLE | {0x0A: "⏎", 0x09: " "}


def _escape(code: int) -> str:
    units = chr(code).encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


_ESCAPED = {code: _escape(code) for code in _VISIBLE}
_HALVES = {code: _ESCAPED[code] for code in range(0xD800, 0xE000)}


def display_text(text: str) -> str:
    """The text with control characters, direction overrides and what hides made visible; line breaks and tabs stay.

    For people's eyes only: JSON and exports keep the original. Joiners (U+200C, U+200D) stay: scripts and emoji need
    them.
    """
    return text.translate(_VISIBLE)


def display_line(text: str, width: int = 0) -> str:
    """As `display_text`, on one line, cut to ``width`` characters with an ellipsis (0: not cut)."""
    head = text if not width or len(text) <= width else text[: width - 1] + "…"
    return head.translate(_ONE_LINE)


def display_json(text: str) -> str:
    """JSON that says the same with all that `display_text` makes visible as ``\\uXXXX``: for a terminal."""
    return text.translate(_ESCAPED)


def encodable_json(text: str) -> str:
    """JSON that says the same with halves of characters as ``\\uXXXX``: the only ones that UTF-8 cannot hold."""
    return text if text.isascii() else text.translate(_HALVES)
