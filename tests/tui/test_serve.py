"""``review --serve``: the owner's page works; other pages, other hosts and whoever lacks the token get nothing."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from factories.patience import PATIENCE
from factories.reviewing import make_pool

pytest.importorskip("textual_serve")
import aiohttp
from factories.browser import CHROMIUM, browser


@dataclass
class Served:
    """A running ``review --serve``; ``said`` is what it has written to stderr."""

    process: subprocess.Popen[str]
    url: str
    errors: Path

    @property
    def base(self) -> str:
        return re.sub(r"[^/]*/$", "", self.url).rstrip("/")

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    @property
    def said(self) -> str:
        return self.errors.read_text(encoding="utf-8")


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Served]:
    errors = folder.with_name("errors.txt")
    with errors.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "icl_curate.cli", "review", "-w", str(folder), "--serve", "0", *options],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
    assert process.stdout is not None
    try:
        yield Served(process, process.stdout.readline().strip(), errors)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
        process.stdout.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pool(tmp_path_factory.mktemp("served") / "w").path


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(folder) as found:
        yield found


async def status(url: str, **headers: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as client, client.get(url, headers=headers, allow_redirects=False) as reply:
        await reply.read()
        return reply.status, reply.headers


def get(url: str, **headers: str) -> int:
    return asyncio.run(status(url, **headers))[0]


async def opened(served: Served, url: str, keys: str, wanted: str, **headers: str) -> None:
    """Open a websocket, type, and wait until the app has painted what is wanted."""
    async with aiohttp.ClientSession() as client, client.ws_connect(url, headers=headers) as socket:
        await painted(socket, "Overview")
        await socket.send_json(["stdin", keys])
        await painted(socket, wanted)


async def painted(socket: aiohttp.ClientWebSocketResponse, wanted: str) -> None:
    seen = b""
    async with asyncio.timeout(60):
        while wanted.encode() not in re.sub(rb"\x1b\[[0-9;]*m", b"", seen):
            message = await socket.receive()
            assert message.type is aiohttp.WSMsgType.BINARY, message
            seen += message.data


PARTS = ("", "ws", "static/js/textual.js", "static/css/xterm.css", "download/x")


@pytest.mark.parametrize("part", PARTS)
def test_without_the_token_nothing_is_answered(served: Served, part: str) -> None:
    for token in ("", "x/", f"{served.url.split('/')[3][:-1]}x/", "%ff%fe/", "static/../"):
        assert get(f"{served.base}/{token}{part}", Origin=served.base) == 403
    assert get(f"{served.base}/{part}?token={served.url.split('/')[3]}", Origin=served.base) == 403


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "localhost", "127.0.0.1:1", "localhost.:{port}"]
)
def test_under_another_name_nothing_is_answered(served: Served, part: str, host: str) -> None:
    """DNS rebinding: a stranger's name that leads to this machine."""
    assert get(f"{served.url}{part}", Host=host.format(port=served.port), Origin=served.base) == 403


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}", ""]
)
def test_to_another_page_nothing_is_answered(served: Served, part: str, origin: str) -> None:
    assert get(f"{served.url}{part}", Origin=origin.format(port=served.port)) == 403


def test_a_websocket_says_what_page_it_is_of(served: Served) -> None:
    async def tried(**headers: str) -> int:
        async with aiohttp.ClientSession() as client:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(f"{served.url}ws", headers=headers)
            return refused.value.status

    assert asyncio.run(tried()) == 403
    assert asyncio.run(tried(Origin="https://evil.example")) == 403
    assert asyncio.run(tried(Origin=served.base, Host=f"evil.example:{served.port}")) == 403


def test_the_owner_gets_the_page_that_no_other_may_frame_keep_or_pass_on(served: Served) -> None:
    host = f"localhost:{served.port}"
    for name, part in (("127.0.0.1", ""), ("localhost", ""), ("localhost", "static/js/textual.js")):
        code, headers = asyncio.run(status(f"{served.url}{part}", Host=f"{name}:{served.port}"))
        assert code == 200
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert "Set-Cookie" not in headers
    asyncio.run(opened(served, f"{served.url}ws", "3", "not measured yet", Host=host, Origin=f"http://{host}"))


def test_the_page_runs_its_own_script_and_no_other(served: Served) -> None:
    """A browser runs a script in the page if the policy has its digest: keys work without a click."""

    async def page() -> tuple[str, str]:
        async with aiohttp.ClientSession() as client, client.get(served.url) as reply:
            return await reply.text(), reply.headers["Content-Security-Policy"]

    text, policy = asyncio.run(page())
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert ".focus()" in script and f"script-src 'self' 'sha256-{digest}';" in policy


def test_the_token_is_said_once_and_the_limits_are(served: Served) -> None:
    get(served.url)
    get(f"{served.url}nothing")
    token = served.url.split("/")[3]
    assert len(token) >= 43  # 256 bits
    assert token not in served.said
    assert "commands, paths and other LLMs are disabled" in served.said


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127/8")
def test_it_listens_on_one_address_alone(served: Served) -> None:
    with pytest.raises(aiohttp.ClientConnectionError):
        get(served.url.replace("127.0.0.1", "127.0.0.2"), Host=f"127.0.0.1:{served.port}")


def test_commands_are_off_in_a_served_session(served: Served) -> None:
    asyncio.run(opened(served, f"{served.url}ws", "!", "commands are disabled", Origin=served.base))


def test_commands_are_on_where_the_owner_said_so(folder: Path, tmp_path: Path) -> None:
    with serving(Path(shutil.copytree(folder, tmp_path / "w")), "--allow-commands") as served:
        asyncio.run(opened(served, f"{served.url}ws", "!", "icl-curate …", Origin=served.base))
        assert "run any icl-curate command as you, with your keys" in served.said


def test_the_flag_belongs_to_serving(run: Any, folder: Path) -> None:
    done = run("review", "-w", folder, "--allow-commands")
    assert (done.code, done.out) == (2, "")
    assert "--allow-commands only applies with --serve" in done.err


def test_a_port_that_is_taken_is_told(run: Any, served: Served, folder: Path) -> None:
    done = run("review", "-w", folder, "--serve", served.port)
    assert done.code == 2
    assert f"error: cannot serve on port {served.port}" in done.err and "Traceback" not in done.err


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_sessions_end_with_their_server(folder: Path, tmp_path: Path, how: signal.Signals) -> None:
    async def end_it(served: Served) -> list[int]:
        headers = {"Origin": served.base}
        async with aiohttp.ClientSession() as client, client.ws_connect(f"{served.url}ws", headers=headers) as socket:
            await painted(socket, "Overview")
            sessions = children(served.process.pid)
            served.process.send_signal(how)
            await asyncio.to_thread(served.process.wait, PATIENCE)
            return sessions

    with serving(Path(shutil.copytree(folder, tmp_path / "w"))) as served:
        sessions = asyncio.run(end_it(served))
        assert len(sessions) == 1
        deadline = time.monotonic() + PATIENCE
        while any(alive(pid) for pid in sessions):
            assert time.monotonic() < deadline, "a session outlived its server"
            time.sleep(0.1)
        assert served.process.returncode == (0 if how == signal.SIGINT else -signal.SIGKILL)
        assert "Traceback" not in served.said


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# A real browser.

ATTACK = """<!doctype html><title>waits</title><script>
const socket = new WebSocket("{url}");
socket.onopen = () => {{ document.title = "opened"; socket.send(JSON.stringify(["stdin", "!"])); }};
socket.onerror = () => {{ document.title = "refused"; }};
</script>"""


@contextmanager
def page(html: Callable[[], str]) -> Iterator[str]:
    """A page of somebody else, on another port of this machine: for cookies it would be the same site."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(html().encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=partial(server.serve_forever, 0.05))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_in_a_browser_the_owners_page_works_and_a_foreign_page_is_refused(served: Served, tmp_path: Path) -> None:
    attack = ATTACK.format(url=served.url.replace("http", "ws") + "ws")  # even one that knows the token

    async def script() -> None:
        async with browser(tmp_path / "profile") as new_tab:
            own = await new_tab()
            await own.open(served.url)
            await own.until(lambda: any("Overview" in frame for frame in own.frames), "the first paint")
            classes = await own.evaluate("document.body.className")
            assert "-first-byte" in classes and "-closed" not in classes
            complaints = [line for line in own.console if "Security Policy" in line or "Failed to load" in line]
            assert complaints == []
            await own.until(lambda: any("Quit" in frame for frame in own.frames), "the bar of keys")
            await own.do("Input.dispatchKeyEvent", type="keyDown", key="?", text="?")  # and nothing was clicked
            await own.until(lambda: any("Close" in frame for frame in own.frames), "help")
            with page(lambda: attack) as foreign:
                other = await new_tab()
                await other.open(foreign)
                await other.until(lambda: other.frames or any("403" in line for line in other.console), "an answer")
                assert await other.evaluate("document.title") == "refused"
                assert other.frames == []

    asyncio.run(script())
