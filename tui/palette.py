"""The command palette: the open tab's own actions come first, as `ReviewApp.get_system_commands` lists them."""

from __future__ import annotations

from textual.command import DiscoveryHit, Hits
from textual.system_commands import SystemCommandsProvider


class Palette(SystemCommandsProvider):
    """Textual's own, which sorts by name what it shows before anything is typed."""

    async def discover(self) -> Hits:
        for title, about, call, discover in self.app.get_system_commands(self.screen):
            if discover:
                yield DiscoveryHit(title, call, help=about)
