"""Files at addresses, over real HTTP on 127.0.0.1: a server of files, and one that speaks as much of S3 as is read."""

from __future__ import annotations

import gzip
import io
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from factories.commands import Run
from icl_curate.engine.base.errors import Cancelled, UsageError
from icl_curate.engine.base.progress import CancelToken, Event, Monitor
from icl_curate.engine.index import remote
from icl_curate.engine.index.build import IndexPlan, index_pool
from icl_curate.engine.index.questions import read_questions
from icl_curate.engine.store.demonstrations import active_rows, fetch
from icl_curate.engine.store.workspace import Workspace

ROWS = b"".join(json.dumps({"text": f"text {i}", "label": "ab"[i % 2]}).encode() + b"\n" for i in range(20))


@dataclass
class Site:
    """Paths to what is answered: a body, or status, headers and body."""

    pages: dict[str, bytes | tuple[int, Mapping[str, str], bytes]]
    url: str = ""
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)


@contextmanager
def served(pages: dict[str, Any], host: str = "127.0.0.1") -> Iterator[Site]:
    site = Site(pages)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            page = site.pages.get(self.path.partition("?")[0], (404, {}, b""))
            status, headers, body = page if isinstance(page, tuple) else (200, {}, page)
            if (wanted := self.headers.get("Range")) and status == 200:
                begin, _, end = wanted.removeprefix("bytes=").partition("-")
                last = min(int(end or len(body)), len(body) - 1)
                headers = {**headers, "Content-Range": f"bytes {begin}-{last}/{len(body)}"}
                status, body = 206, body[int(begin) : last + 1]
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer((host, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        site.url = f"http://{host}:{server.server_port}"
        try:
            yield site
        finally:
            server.shutdown()


def indexed(tmp_path: Path, *paths: str) -> Workspace:
    workspace = Workspace.create(tmp_path / "w")
    index_pool(workspace, IndexPlan(paths=paths))
    return workspace


def refused(tmp_path: Path, address: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        indexed(tmp_path, address)
    assert not list((tmp_path / "w" / "web").rglob("*.*"))  # nothing is left
    return caught.value


def test_a_file_is_fetched_once_and_read_again_without_its_server(tmp_path: Path) -> None:
    events: list[Event] = []
    with served({"/d/tickets.jsonl": ROWS}) as site:
        workspace = Workspace.create(tmp_path / "w")
        plan = IndexPlan(paths=(f"{site.url}/d/tickets.jsonl?token=abc",))
        assert index_pool(workspace, plan, Monitor(events.append)).demonstrations == 20
        assert any(event.task.startswith("download") for event in events)
        assert {row.source for row in fetch(workspace, active_rows(workspace))} == {"tickets"}
        assert index_pool(workspace, IndexPlan()).unchanged_files == 1 and len(site.asked) == 1
        site.pages["/d/tickets.jsonl"] = ROWS[: ROWS.index(b"\n") + 1]
        assert index_pool(workspace, plan).retired == 19  # named again
    assert index_pool(workspace, IndexPlan()).unchanged_files == 1
    assert "token=abc" not in (workspace.path / "workspace.duckdb").read_bytes().decode("latin-1")


def test_compressed_files_and_queries(tmp_path: Path) -> None:
    packed = gzip.compress(ROWS)
    pages = {"/a.jsonl.gz": packed, "/b.jsonl": (200, {"Content-Encoding": "gzip"}, packed), "/q": ROWS}
    with served(pages) as site:
        workspace = indexed(tmp_path, f"{site.url}/a.jsonl.gz")
        assert len(fetch(workspace, active_rows(workspace))) == 20
        assert read_questions([f"{site.url}/b.jsonl"]).total == 20
        assert read_questions([f"{site.url}/q"]).total == 20  # by its first bytes
        plan = IndexPlan(validation=(f"{site.url}/q",))
        assert index_pool(Workspace.create(tmp_path / "v"), plan).validation == 20


def test_credentials_are_those_of_the_address_and_go_nowhere_else(tmp_path: Path) -> None:
    with served({"/p.jsonl": ROWS}) as other:
        there = other.url.replace("127.0.0.1", "localhost")
        with served({"/p.jsonl": (302, {"Location": f"{there}/p.jsonl"}, b"")}) as site:
            indexed(tmp_path, f"{site.url.replace('//', '//me:secret@')}/p.jsonl")
            assert site.asked[0][1]["authorization"].startswith("Basic ")
            assert "authorization" not in other.asked[0][1]


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ((404, {}, b""), "HTTP 404"),
        ((401, {}, b""), "HTTP 401"),
        ((200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>"), "is a web page"),
        ((200, {"Content-Encoding": "gzip, gzip"}, b"x"), "was not asked for"),
        ((200, {"Content-Length": "99"}, b"{}"), "cannot fetch"),
        ((200, {"Content-Length": str(1 << 40)}, b"{}"), "larger than"),
        ((200, {}, b""), "is empty"),
        ((302, {"Location": "/p.jsonl"}, b""), "redirects more than"),
        ((302, {"Location": "ftp://host.example/p.jsonl"}, b""), "cannot fetch"),
        ((200, {"Content-Encoding": "gzip"}, b"no gzip"), "cannot fetch"),
    ],
)
def test_what_is_refused(page: Any, why: str, tmp_path: Path) -> None:
    with served({"/p.jsonl": page}) as site:
        error = refused(tmp_path, f"{site.url.replace('//', '//me:secret@')}/p.jsonl?token=abc")
    assert why in error.what and "secret" not in str(error) and "token" not in str(error)


def test_a_server_that_is_silent_or_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served({"/p.jsonl": ROWS}) as site:
        monkeypatch.setattr(remote, "LARGEST", 100)
        assert "larger than" in refused(tmp_path, f"{site.url}/p.jsonl").what
    monkeypatch.setattr(remote, "SILENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "timed out" in refused(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}/p.jsonl").what
    stopped = CancelToken()
    stopped.cancel()
    with served({"/p.jsonl": ROWS}) as site, pytest.raises(Cancelled), (tmp_path / "out").open("wb") as out:
        remote.fetch(f"{site.url}/p.jsonl", out, monitor=Monitor(cancel=stopped))


@pytest.mark.parametrize(
    ("here", "there", "followed"),
    [
        ("https://host.example/a", "https://cdn.example/b", True),
        ("http://host.example/a", "https://host.example/a", True),
        ("https://host.example/a", "http://host.example/a", False),
        ("https://host.example/a", "https://169.254.169.254/latest", False),
        ("http://host.example/a", "http://localhost:8000/a", False),
        ("http://host.example/a", "http://[::1]/a", False),
        ("http://10.0.0.1/a", "http://10.0.0.2/a", True),
    ],
)
def test_where_a_redirect_may_lead(here: str, there: str, followed: bool) -> None:
    import httpx2

    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return httpx2.Response(302, headers={"Location": there}) if len(asked) == 1 else httpx2.Response(200)

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as client:
        if followed:
            assert remote._answer(client, here).status_code == 200 and asked == [here, there]
        else:
            with pytest.raises(UsageError, match="redirects to"):
                remote._answer(client, here)
            assert asked == [here]


def test_names_of_files_stay_below_the_workspace() -> None:
    home = Path("/w")
    for path in ("/..", "/%2e%2e%2f%2e%2e%2fx", "", "/", "/a/.bashrc", "/" + "x" * 999):
        kept = remote.kept_file(home, f"https://host.example{path}")
        assert kept.parent.parent == home / "web" and kept.name not in ("", ".", "..") and len(kept.name) <= 100


def test_a_workspace_of_a_stranger_has_no_address_fetched(tmp_path: Path, run: Run) -> None:
    with served({"/p.jsonl": ROWS}) as site:
        address = f"{site.url}/p.jsonl"
        assert run("index", address, "-w", tmp_path / "w", "--no-encode").code == 0
        told = len(site.asked)
        for change in (f'reading = reading[:-2] || \', "query": "{address}?select 1"}}\'', f"path = '{address}'"):
            with Workspace.open(tmp_path / "w").write() as con:
                con.execute(f"UPDATE files SET {change}")
            assert run("index", "-w", tmp_path / "w", "--no-encode").code == 2
        assert len(site.asked) == told


def test_an_object_of_a_store_with_the_users_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = {"ACCESS_KEY_ID": "somebody", "SECRET_ACCESS_KEY": "hidden", "EC2_METADATA_DISABLED": "true"}
    for name, value in credentials.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with served({"/pools/d/tickets.jsonl": ROWS, "/pools/no.jsonl": (403, {}, b"")}) as site:
        store = f"endpoint_override={site.url.removeprefix('http://')}&scheme=http&region=us-east-1"
        workspace = indexed(tmp_path, f"s3://pools/d/tickets.jsonl?{store}")
        assert {row.source for row in fetch(workspace, active_rows(workspace))} == {"tickets"}
        assert all("Credential=somebody/" in headers["authorization"] for _, headers in site.asked)
        told = len(site.asked)
        assert index_pool(workspace, IndexPlan()).unchanged_files == 1 and len(site.asked) == told
        for name, why in (("none.jsonl", "there is no s3://pools/none.jsonl"), ("no.jsonl", "ACCESS_DENIED")):
            with pytest.raises(UsageError) as caught:
                index_pool(workspace, IndexPlan(paths=(f"s3://pools/{name}?{store}",)))
            assert why in caught.value.what and "hidden" not in str(caught.value) and "\n" not in caught.value.what


def test_a_key_before_a_bucket_is_used_and_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with served({"/pools/d%20e/tickets.jsonl": ROWS, "/pools/no.jsonl": (403, {}, b"")}) as site:
        store = f"endpoint_override={site.url.removeprefix('http://')}&scheme=http&region=us-east-1"
        remote.fetch(f"s3://somebody:hid%2Fden@pools/d%20e/tickets.jsonl?{store}", out := io.BytesIO())
        assert out.getvalue() == ROWS and "Credential=somebody/" in site.asked[-1][1]["authorization"]
        unclear = "a key that ends where nobody can tell"
        for place, why in {
            "somebody:hidden@pools/no.jsonl": "cannot use s3://pools/no", "somebody:hid/den@pools/no.jsonl": unclear,
            "somebody:/hidden@pools/none.jsonl": unclear, "somebody:12/hid@pools/no.jsonl": unclear,
            "somebody:hid@den/hid@pools/no.jsonl": unclear, "somebody:hid?den@pools/no.jsonl": unclear,
        }.items():  # fmt: skip
            with pytest.raises(UsageError, match=why) as caught:
                remote.fetch(f"s3://{place}?{store}", io.BytesIO())
            assert not any(told in str(caught.value) for told in ("hid", "somebody", "us-east-1"))
