"""Cost estimates: requests are counted against the call cache before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..store import calls
from ..store.workspace import Workspace
from . import cache
from .budget import FREE, SPREAD, Charges, Price
from .cost import Plan
from .probing import adopt_stored
from .types import Backend, Request


def plan(
    workspace: Workspace,
    backend: Backend,
    requests: Sequence[Request],
    price: Price | None = None,
    *,
    anew: bool = False,
) -> Plan:
    """Count without sending anything, not even a probe; ``anew``: as if no answer were cached."""
    probed = adopt_stored(workspace, backend) is not None
    by_key = _distinct(backend, requests)
    known = {} if anew else calls.lookup(workspace, by_key)
    left = [request for key, request in by_key.items() if key not in known]
    tokens = [expected_tokens(backend, request) for request in left]
    low_in, high_in, high_out = (sum(column) for column in zip(*tokens, strict=True)) if tokens else (0, 0, 0)
    low_out = sum(not request.score for request in left)
    if backend.local:
        price = FREE
    cost = (price.cost(low_in, low_out), price.cost(high_in, high_out)) if price else None
    return Plan(
        requests=len(requests),
        distinct=len(by_key),
        cached=len(known),
        to_ask=len(left),
        tokens_in=(low_in, high_in),
        tokens_out=(low_out, high_out),
        cost=cost,
        to_probe=(cache.label(backend),) if isinstance(backend, Charges) and not probed else (),
    )


def _distinct(backend: Backend, requests: Iterable[Request]) -> dict[bytes, Request]:
    identity = backend.identity()
    return {cache.call_key(identity, request): request for request in requests}


def expected_tokens(backend: Backend, request: Request) -> tuple[int, int, int]:
    """Tokens in (low, high) and out (high) of one request."""
    count = backend.count_tokens(request.prompt)
    if request.score and not backend.local:
        count *= max(len(request.prompt.choices), 1)  # a server computes the whole prompt again for each choice
    low, high = (1.0, 1.0) if backend.local else SPREAD
    out = len(request.prompt.choices) if request.score else request.sampling.max_tokens
    return round(count * low), round(count * high), out
