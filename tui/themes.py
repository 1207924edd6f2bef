"""The look: two themes besides Textual's own, and the colour names used in texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError
from textual.theme import Theme

THEMES = (
    Theme(
        "curate-dark",
        primary="#7aa2d6", secondary="#8f9bb3", accent="#e0b062", success="#86b87a", warning="#d99a5b", error="#d9706c",
        foreground="#d6d9de", background="#15171a", surface="#1c1e22", panel="#26292e", dark=True,
        variables={"footer-key-foreground": "#e0b062", "block-cursor-text-style": "none"},
    ),
    Theme(
        "curate-light",
        primary="#2b5c97", secondary="#5b6575", accent="#8a5a00", success="#2f6f2a", warning="#9a5200", error="#a82a28",
        foreground="#20242b", background="#fbfbf9", surface="#f2f2f0", panel="#e4e4e2", dark=False,
        variables={"footer-key-foreground": "#8a5a00", "block-cursor-text-style": "none"},
    ),
)  # fmt: skip

_NAMES = {
    "good": "$success",
    "bad": "$error",
    "warn": "$warning",
    "accent": "$accent",
    "primary": "$primary",
    "key": "$footer-key-foreground",
    "muted": "$foreground-muted",
}


def named_styles(variables: Mapping[str, str]) -> dict[str, Style]:
    """The names as rich styles, in the colours of a theme on its own background."""
    ground = Color.parse(variables["background"])
    styles = {name: _style(variables.get(variable[1:], ""), ground) for name, variable in _NAMES.items()}
    front = Color.parse(variables["foreground"])
    track = Style() if ground.ansi is not None else Style(color=ground.blend(front, 0.2, 1).rich_color)
    cursor = Style(bgcolor=_style(variables.get("primary-muted", ""), ground).color)
    return styles | {
        "title": styles["accent"] + Style(bold=True),
        "hit": styles["accent"] + Style(underline=True),
        "track": track,
        "cursor": cursor,
    }


def _style(colour: str, ground: Color) -> Style:
    try:
        parsed = Color.parse(colour.split()[0])
    except (ColorParseError, IndexError):
        return Style()
    return Style(color=(ground.blend(parsed, parsed.a, 1) if parsed.ansi is None else parsed).rich_color)


def begin_with(app: App[Any], name: str) -> None:
    """Register our themes, and use the one of that name, ours or another, or else the first, before the app starts."""
    for theme in THEMES:
        app.register_theme(theme)
    for theme in list(app.available_themes.values()):
        if theme.ansi and app.no_color:  # its colours are left to the terminal: without any, all is black on black
            app.unregister_theme(theme.name)
    # as nothing is drawn yet, without what watches it, which would have the style sheet parsed once more
    app.set_reactive(App.theme, name if name in app.available_themes else THEMES[0].name)
    app.stylesheet.set_variables(app.get_css_variables())
