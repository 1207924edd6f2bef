"""A text, a demonstration in full, and a log, scrolled with the keys of tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from ..actions import Acting, Action
from .demonstration import RowDetails, in_full


class Reader(Acting, ScrollView, can_focus=True, inherit_bindings=False):
    """Shows one text or table. It is wrapped once and only the lines in view are drawn: a `Static` inside a scrolled
    container costs a layout and a repaint of the whole screen for each text."""

    TITLE = "Text"
    ACTIONS = (
        Action("detail.down", "j,down", "Down", "One line down", footer=False, call="scroll_by(1)"),
        Action("detail.up", "k,up", "Up", "One line up", footer=False, call="scroll_by(-1)"),
        Action("detail.page_down", "ctrl+d,pagedown", "Down", "Page down", footer=False, call="page(1)"),
        Action("detail.page_up", "ctrl+u,pageup", "Up", "Page up", footer=False, call="page(-1)"),
        Action("detail.top", "g,home", "Top", "Go to the top", footer=False, call="edge(False)"),
        Action("detail.bottom", "G,end", "Bottom", "Go to the bottom", footer=False, call="edge(True)"),
    )

    virtual_size = Reactive(Size(0, 0), layout=False)
    """Without a layout of the screen for each text: the scrollbar is always there, so no widget changes its size."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.content: RenderableType = Text()
        self._lines: list[list[Segment]] = []
        self._fitted: tuple[object, ...] = ()
        """What the lines were wrapped for."""
        self._base = Style()

    def read(self, content: RenderableType) -> None:
        """Show this from its beginning. The caller has made it safe to display."""
        self.content, self._fitted = content, ()
        self._fit()
        self.scroll_home(animate=False)
        self.refresh()

    def on_resize(self) -> None:
        self._fit()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._fitted = ()

    def action_scroll_by(self, by: int) -> None:
        self.scroll_relative(y=by, animate=False)

    def action_edge(self, bottom: bool) -> None:
        self.scroll_to(y=self.max_scroll_y if bottom else 0, animate=False)

    def action_page(self, by: int) -> None:
        self.scroll_relative(y=by * max(1, self.size.height - 2), animate=False)

    # Drawing.

    def _fit(self) -> None:
        """Wrap the content for the current width."""
        width = self.scrollable_content_region.width
        if width <= 0 or self._fitted == (width,):
            return
        console = self.app.console
        options = console.options.update(width=width, height=None)
        self._lines = console.render_lines(self.content, options, pad=False)
        while self._lines and not any(segment.text.strip() for segment in self._lines[-1]):
            self._lines.pop()
        self._fitted = (width,)
        self.virtual_size = Size(width, len(self._lines))
        self.vertical_scrollbar.window_virtual_size = len(self._lines)
        self.vertical_scrollbar.window_size = self.container_size.height

    def render_lines(self, crop: Region) -> list[Strip]:
        self._fit()
        self._base = self.rich_style  # once for all lines: it is computed from all ancestors
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width, base = self.scrollable_content_region.width, self._base
        at = y + round(self.scroll_y)
        if at >= len(self._lines):
            return Strip.blank(width, base)
        segments = [Segment(text, base + (style or Style()), control) for text, style, control in self._lines[at]]
        strip = Strip(segments).adjust_cell_length(width, base)
        chosen = self.text_selection
        span = chosen.get_span(at) if chosen is not None else None
        if span is not None:
            strip = self._marked(strip, at, *span)
        return strip.apply_offsets(0, at)

    def _marked(self, strip: Strip, at: int, start: int, end: int) -> Strip:
        """A line with the characters chosen by the mouse."""
        line = self._plain(at)
        ends = cell_len(line[:start]), cell_len(line if end == -1 else line[:end])
        before, chosen, after = strip.divide([*ends, strip.cell_length])
        style = self.screen.get_component_rich_style("screen--selection")
        return Strip.join([before, chosen.apply_style(style), after])

    def _plain(self, at: int) -> str:
        return "".join(segment.text for segment in self._lines[at])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text chosen by the mouse, and what follows it."""
        return selection.extract("\n".join(map(self._plain, range(len(self._lines))))), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()


class Detail(Reader):
    """Shows `demonstration.RowDetails`."""

    TITLE = "Demonstration"

    def show_row(self, seen: RowDetails | None, first: RenderableType | None = None) -> None:
        """Show the demonstration, after what is to be read ``first``."""
        text = in_full(seen) if seen else Text()
        self.read(text if first is None else Group(first, "", text))


MOST = 1_000
"""Maximum lines shown, the last ones."""


class LogView(Reader):
    """Shows texts below each other and stays at the end, unless it was scrolled away from there."""

    TITLE = "Log"
    shown: Sequence[Text] = ()

    def set_lines(self, lines: Sequence[Text]) -> None:
        """Show exactly these lines."""
        if (shown := list(lines[-MOST:])) != self.shown:
            self.shown, at_end, top = shown, self.is_vertical_scroll_end, self.scroll_y
            self.read(Text("\n").join(shown))
            self.scroll_to(y=self.max_scroll_y if at_end else top, animate=False)
