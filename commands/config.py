"""`config`: all settings."""

from __future__ import annotations

from ..render.terminal import print_json
from .options import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption


def config(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """Show all settings with their values and origins."""
    from ..engine.store.settings import CONFIG, about, knobs, resolve, user_config

    resolved = resolve(workspace, {})
    if as_json:
        print_json(resolved.as_json())
        return
    from ..render.tables import show_table

    rows = [
        [name, None if value is None else str(value), resolved.origins[name], about(name)]
        for name, value in knobs(resolved.settings).items()
    ]
    note = f"set them in {workspace / CONFIG}, {user_config()}, or as ICL_CURATE_<NAME> in the environment"
    show_table(["setting", "value", "from", "meaning>"], rows, note=note)
