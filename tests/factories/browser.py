"""A headless chromium of one's own, told what to do over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--remote-debugging-port=0", "--window-size=1200,800",
)  # fmt: skip


class Tab:
    """One page. ``frames`` are the texts its websockets received, ``console`` what it complained of."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self.frames: list[str] = []
        self.console: list[str] = []

    async def listen(self) -> None:
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                self._replies.pop(told["id"]).set_result(told.get("result", told.get("error")))
            elif told["method"] == "Network.webSocketFrameReceived":
                frame = told["params"]["response"]
                data = frame["payloadData"]
                text = data if frame["opcode"] == 1 else base64.b64decode(data).decode("utf-8", "replace")
                self.frames.append(text)
            elif told["method"] == "Log.entryAdded":
                self.console.append(told["params"]["entry"]["text"])

    async def do(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._replies[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        return await asyncio.wait_for(self._replies[number], 60)

    async def open(self, url: str) -> None:
        for domain in ("Network", "Page", "Log", "Runtime"):
            await self.do(f"{domain}.enable")
        await self.do("Page.navigate", url=url)

    async def evaluate(self, script: str) -> Any:
        return (await self.do("Runtime.evaluate", expression=script, awaitPromise=True))["result"].get("value")

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until the condition holds; fails after a minute."""
        for _ in range(1200):
            if condition():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{what} did not come about; the page complained: {self.console}")


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Callable[[], Any]]:
    """A browser that begins with nothing, ended with the block; gives a function that makes tabs."""
    assert CHROMIUM
    quiet = subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, *FLAGS, f"--user-data-dir={profile}", stdin=quiet, stdout=quiet, stderr=quiet
    )
    listeners = []
    try:
        async with aiohttp.ClientSession() as client:
            told = profile / "DevToolsActivePort"
            for _ in range(1200):
                if told.exists() and told.read_text():
                    break
                assert process.returncode is None, "chromium ended at once"
                await asyncio.sleep(0.05)
            address = f"http://127.0.0.1:{told.read_text().split()[0]}"

            async def tab() -> Tab:
                async with client.put(f"{address}/json/new") as reply:
                    found = await reply.json()
                socket = await client.ws_connect(found["webSocketDebuggerUrl"], max_msg_size=0)
                made = Tab(socket)
                listeners.append(asyncio.create_task(made.listen()))
                return made

            yield tab
            for listener in listeners:
                listener.cancel()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
