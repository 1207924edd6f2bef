"""``review --serve``: the app in the owner's browser only.

Any page that the owner visits can reach a port of this machine, also through a host name of its own (DNS rebinding). So
a request is answered only if its Host is this server, its Origin is one of the server's own pages or missing, and its
path has the token; all others get 403. A websocket always sends the Origin of its page, which a page cannot forge. The
token is not a cookie, because cookies are sent to every port of a host.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
import shlex
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler
from textual_serve.app_service import AppService
from textual_serve.server import Server

from ..engine.jobs.start import PROGRAM
from ..render.terminal import narrate, say
from .hosts import LOOPBACK, is_own, listener_at, log_on_one_line, own_hosts

HOST = "127.0.0.1"
GRACE = 3.0
"""Seconds for open sessions to end after the server is interrupted."""

PAGE = Path(__file__).with_name("app_index.html")
OWN_PAGES = "requests from other pages are refused\n"


class Guarded(Server):
    """textual-serve behind a token, at ``url``, for this machine's own pages only."""

    def __init__(self, command: str, port: int) -> None:
        self.token = secrets.token_urlsafe(32)
        super().__init__(command, HOST, port, "icl-curate review", templates_path=PAGE.parent)
        self.sessions: set[web.WebSocketResponse] = set()
        self.hosts = own_hosts(LOOPBACK, port)
        self.pages = {f"http://{host}" for host in self.hosts}
        own = re.search("<script>(.*?)</script>", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        assert own is not None
        digest = base64.b64encode(hashlib.sha256(own[1].encode()).digest()).decode()
        policy = {
            "default-src": "'none'",
            "script-src": f"'self' 'sha256-{digest}'",
            "style-src": "'self' 'unsafe-inline'",
            "font-src": "'self'",
            "img-src": "'self' data:",
            "connect-src": " ".join(sorted(f"ws://{host}" for host in self.hosts)),
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        self.headers = {
            "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
            "X-Frame-Options": "DENY",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }

    @property
    def url(self) -> str:
        return f"{self.public_url}/{self.token}/"

    async def _make_app(self) -> web.Application:
        """All routes of textual-serve are under the token: page, scripts, websocket, downloads."""
        app = web.Application(middlewares=[self._guard])
        app.add_subapp(f"/{self.token}/", await super()._make_app())
        app.on_response_prepare.append(self._harden)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.path.removeprefix("/").partition("/")[0]
        hosts, pages = request.headers.getall("Host", []), request.headers.getall("Origin", [])
        if not is_own(hosts, self.hosts):
            raise web.HTTPForbidden(text="not an address of this server\n")
        if pages and (len(pages) != 1 or pages[0] not in self.pages):
            raise web.HTTPForbidden(text=OWN_PAGES)
        if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self.token.encode()):
            raise web.HTTPForbidden(text="open the address that review --serve printed in its terminal\n")
        return await handler(request)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        if "Origin" not in request.headers:
            raise web.HTTPForbidden(text=OWN_PAGES)
        return await super().handle_websocket(request)

    async def _process_messages(self, websocket: web.WebSocketResponse, app_service: AppService) -> None:
        self.sessions.add(websocket)
        try:
            await super()._process_messages(websocket, app_service)
        finally:
            self.sessions.discard(websocket)

    async def on_shutdown(self, app: web.Application) -> None:
        """Otherwise shutdown would wait for open pages."""
        await asyncio.gather(*(session.close() for session in self.sessions))

    async def _harden(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(self.headers)

    async def on_startup(self, app: web.Application) -> None:
        """Suppresses textual-serve's start message."""


def serve(path: Path, port: int, allow_commands: bool) -> None:
    """Serve the workspace at ``path`` until interrupted, at an address of this machine that is printed once.

    A ``port`` of 0 means any free one. Raises `UsageError` if the port is not available.
    """
    listener = listener_at(HOST, port, "icl-curate review --serve 0")
    allowed = ["--allow-commands"] if allow_commands else []
    command = "exec " + shlex.join([*PROGRAM, "review", "--workspace", str(path.resolve()), *allowed])
    server = Guarded(command, listener.getsockname()[1])
    log_on_one_line()
    may = (
        "run any icl-curate command as you, with your keys and your files (--allow-commands)"
        if allow_commands
        else "decide on the pool and train with the configured LLM; commands, paths and other LLMs are disabled"
    )
    narrate(f"Anyone with this address can {may}.\nOpen it in a browser on this machine; Ctrl-C ends it.")
    say(server.url)
    web.run_app(server._make_app(), sock=listener, shutdown_timeout=GRACE, access_log=None, print=None)
