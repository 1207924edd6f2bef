"""Making text from a pool safe to show: a corpus may hold bytes that move the cursor or turn the writing round."""

from __future__ import annotations

_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_VISIBLE[0x7F] = "␡"
_VISIBLE |= {code: f"<{code:02X}>" for code in range(0x80, 0xA0)}  # C1 controls: 9B alone opens an escape sequence
_VISIBLE |= {
    code: f"<U+{code:04X}>"  # marks that reorder what follows them
    for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
_VISIBLE |= {0x2028: "<U+2028>", 0x2029: "<U+2029>"}
_ONE_LINE = _VISIBLE | {0x0A: "⏎", 0x09: " "}


def display_text(text: str) -> str:
    """The text with control characters and direction overrides made visible; line breaks and tabs stay.

    For people's eyes only: JSON and exports keep the original.
    """
    return text.translate(_VISIBLE)


def display_line(text: str, width: int = 0) -> str:
    """As `display_text`, on one line, cut to ``width`` characters with an ellipsis (0: not cut)."""
    head = text if not width or len(text) <= width else text[: width - 1] + "…"
    return head.translate(_ONE_LINE)
