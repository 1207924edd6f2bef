"""`serve`: selection over HTTP. `lock`: hold on to what was judged."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..engine.base.errors import UsageError, counted
from ..render.terminal import narrate, print_json, say
from .options import (
    DEFAULT_WORKSPACE,
    DeviceOption,
    JsonOption,
    MethodOption,
    OrderOption,
    ShotsOption,
    TemplateOption,
    WorkspaceOption,
)
from .shared import open_workspace, settings_of

if TYPE_CHECKING:
    from ..engine.store.settings import Settings

PORT = 8737


def serve(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    host: Annotated[str, typer.Option(help="Address to listen on; another than this machine's needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port; 0: any free one.", min=0, max=65535)] = PORT,
    method: MethodOption = None,
    k: ShotsOption = None,
    max_k: Annotated[int, typer.Option("--max-k", help="Most demonstrations that a request may ask for.", min=0)] = 100,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File with the token that requests must send; else ICL_CURATE_TOKEN."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="Further name that the server is reached by; repeatable. *: any."),
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of processes.", min=1, max=256)] = 1,
    max_connections: Annotated[
        int,
        typer.Option(
            "--max-connections", help="Most open connections of a process, half of them from one address.", min=2
        ),
    ] = 512,
    timeout: Annotated[
        float,
        typer.Option(help="Seconds that a client may take over a request's head, and again over its body.", min=0.1),
    ] = 20.0,
    locked: Annotated[
        bool, typer.Option("--locked", help="Serve exactly what was judged: the pool, models and settings of the lock.")
    ] = False,
    device: DeviceOption = None,
) -> None:
    """Select demonstrations over HTTP for a serving process; calls no LLM."""
    from ..engine.base.packages import require

    require("serve", "starlette", "uvicorn", "httptools")
    from ..serving.requests import RequestLimits
    from ..serving.run import serve as run
    from ..serving.run import token_of

    settings = settings_of(workspace, method=method, k=k, device=device)
    if locked:
        settings = _locked(workspace, settings, method or k is not None)
    limits = RequestLimits(k=max(max_k, settings.k), connections=max_connections, timeout=timeout)
    token = token_of(token_file)
    run(
        workspace,
        settings,
        host,
        port,
        also=allow_host or (),
        token=token,
        limits=limits,
        workers=workers,
        locked=locked,
    )


def _locked(workspace: Path, settings: Settings, otherwise: object) -> Settings:
    """The settings of the lock. Raises `UsageError` if the workspace is not what was locked."""
    from ..engine.base.errors import UsageError
    from ..engine.select.lock import check_lock, graded_otherwise, read_lock

    if otherwise:
        raise UsageError("--locked has its own method and k", "leave out --method and -k, or --locked")
    store = open_workspace(workspace)
    found = read_lock(store)
    check_lock(store, found)
    applied = found.applied(settings)
    if told := graded_otherwise(store, found, applied):
        narrate(f"note: {told}")
    return applied


def lock(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    method: MethodOption = None,
    k: ShotsOption = None,
    order: OrderOption = None,
    template: TemplateOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing: fail if the workspace is not what was locked.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Lock pool, models and settings, so that a service loads exactly what was judged: serve --locked."""
    from ..engine.select.lock import FILE, check_lock, graded_otherwise, read_lock
    from ..engine.select.lock import lock as write

    settings = settings_of(workspace, method=method, k=k, order=order, template=template)
    store = open_workspace(workspace)
    if check:
        locked = read_lock(store)
        check_lock(store, locked)
        if told := graded_otherwise(store, locked, locked.applied(settings)):
            narrate(f"note: {told}")
    else:
        before = None
        with suppress(UsageError):  # there is none, or none that can be read
            before = read_lock(store).graded_by
        locked = write(store, settings)
        if before and locked.graded_by and (told := before.changed(locked.graded_by)):
            narrate(f"WARNING: this replaces a lock of what was judged otherwise: {told}")
    if as_json:
        print_json(locked.as_json())
        return
    chosen = locked.settings
    what = f"{counted(locked.rows, 'row')}, {chosen['method']}, k = {chosen['k']}"
    say(f"{what}: as locked at {locked.locked_at}" if check else f"{store.path / FILE}: {what}")
    if locked.graded_by and locked.graded_by.line:
        say(f"metric {locked.graded_by.line}")
