"""The command palette: the open tab's own actions come first, as `ReviewApp.get_system_commands` lists them."""

from __future__ import annotations

from textual import on
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette, DiscoveryHit, Hits
from textual.message import Message
from textual.system_commands import SystemCommandsProvider
from textual.theme import ThemeProvider
from textual.widgets import Button, Input, OptionList


class Palette(SystemCommandsProvider):
    """Textual's own, which sorts by name what it shows before anything is typed."""

    async def discover(self) -> Hits:
        for title, about, call, discover in self.app.get_system_commands(self.screen):
            if discover:
                yield DiscoveryHit(title, call, help=about)


class PaletteScreen(CommandPalette):
    """Textual's own closes again, and runs its command again, at each key that was queued before it had closed."""

    @on(Input.Submitted)
    @on(Button.Pressed)
    @on(OptionList.OptionSelected)
    def _once(self, event: Message) -> None:
        if not self.is_active:
            event.prevent_default()
            event.stop()

    def dismiss(self, result: None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()


class WithPalette(App[None]):
    """Opens `PaletteScreen` where Textual would open its own."""

    def action_command_palette(self) -> None:
        if not PaletteScreen.is_open(self):  # type: ignore[arg-type]
            self.push_screen(PaletteScreen(id="--command-palette"))

    def search_themes(self) -> None:
        self.push_screen(PaletteScreen([ThemeProvider], placeholder="Search for themes…"))
