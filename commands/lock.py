"""`lock`: hold on to what was judged."""

from __future__ import annotations

from typing import Annotated

import typer

from ..engine.base.errors import counted
from ..render.terminal import print_json, say
from .options import DEFAULT_WORKSPACE, JsonOption, MethodOption, OrderOption, ShotsOption, WorkspaceOption
from .shared import open_workspace, settings_of


def lock(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    method: MethodOption = None,
    k: ShotsOption = None,
    order: OrderOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing: fail if the workspace is not what was locked.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Lock pool, models and settings, so that a service loads exactly what was judged: serve --locked."""
    from ..engine.select.lock import FILE, check_lock, read_lock
    from ..engine.select.lock import lock as write

    store = open_workspace(workspace)
    if check:
        found = read_lock(store)
        check_lock(store, found)
    else:
        found = write(store, settings_of(workspace, method=method, k=k, order=order))
    if as_json:
        print_json(found.as_json())
        return
    chosen = found.settings
    what = f"{counted(found.rows, 'row')}, {chosen['method']}, k = {chosen['k']}"
    say(f"{what}: as locked at {found.locked_at}" if check else f"{store.path / FILE}: {what}")
