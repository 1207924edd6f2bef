"""`llm`: capabilities of the LLM, and confirmed servers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..engine.base.errors import counted
from ..render.terminal import print_json, say
from .options import (
    DEFAULT_WORKSPACE,
    USUAL_REQUEST,
    BaseURLOption,
    DeviceOption,
    ForceOption,
    JsonOption,
    LLMOption,
    PriceInOption,
    PriceOutOption,
    RequestOptions,
    WorkspaceOption,
)
from .paid import confirm_server
from .shared import fail, narrated, open_workspace, settings_of, tell


def llm_check(
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    llm: LLMOption = None,
    base_url: BaseURLOption = None,
    device: DeviceOption = None,
    price_in: PriceInOption = None,
    price_out: PriceOutOption = None,
    request: RequestOptions = USUAL_REQUEST,
    as_json: JsonOption = False,
) -> None:
    """Check the LLM: reachability, latency, log-probabilities, scoring and price."""
    from ..engine.base.errors import LLMError
    from ..engine.llm.asking import sampling_of
    from ..engine.llm.client import client_for
    from ..engine.llm.probing import check

    settings = settings_of(
        workspace, llm=llm, base_url=base_url, device=device, price_in=price_in, price_out=price_out, **asdict(request)
    )
    store = open_workspace(workspace, create=True)
    confirm_server(settings)
    with narrated() as monitor, client_for(store, settings, monitor) as client:
        checked = check(store, client.backend, client.price, monitor, sampling_of(client.settings))
    if not checked.reachable:
        fail(checked.error, checked.fix, LLMError.exit_code)
    tell(checked, as_json)


def llm_record(
    file: Annotated[Path, typer.Argument(help="Parquet file to write.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    llm: LLMOption = None,
    base_url: BaseURLOption = None,
    device: DeviceOption = None,
    request: RequestOptions = USUAL_REQUEST,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the answers of an LLM to a file, to repeat commands without it: --llm replay:FILE."""
    from ..engine.backends.recorded import check_target, record
    from ..engine.llm.client import client_for

    settings = settings_of(workspace, llm=llm, base_url=base_url, device=device, **asdict(request))
    store = open_workspace(workspace)
    check_target(store, file, force)  # before a model is loaded, or a key is asked for
    with narrated() as monitor, client_for(store, settings, monitor, dry_run=True) as client:  # sends nothing
        answers = record(store, client.backend, file, force)
    if as_json:
        print_json({"kind": "recording", "file": str(file), "llm": settings.llm, "answers": answers})
        return
    say(f"{counted(answers, 'answer')} of {settings.llm} written to {file}: --llm replay:{file}")


def llm_trust(
    url: Annotated[str | None, typer.Argument(help="Base URL to confirm (default: list confirmed ones).")] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    forget: Annotated[str | None, typer.Option("--forget", help="Revoke the confirmation of this base URL.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Confirm servers to which the workspace's config.toml may send prompts and your API key."""
    from ..engine.http import trust

    if url is not None:
        trust.confirm(workspace, url)
    if forget is not None:
        trust.forget(workspace, forget)
    servers = trust.confirmed(workspace)
    if as_json:
        print_json({"kind": "trust", "workspace": str(workspace.resolve()), "confirmed": servers})
        return
    for server in servers:
        say(f"confirmed: {server}")
    if not servers:
        say("no server is confirmed for this workspace")
