"""The HTTP client of `served`, below the official one, with the rules of `endpoint`.

httpx2 is heavy, so this module is imported only when the first connection is opened.
"""

from __future__ import annotations

from typing import Any

import httpx2

from ..endpoint import HOPS, Refused, added, check_coding, followed, kept_headers, server_of


class Client(httpx2.Client):
    """As the LLM's client, but not asynchronous: limits the size of replies, and follows no redirect to another server.
    Raises `Refused`."""

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        auth = {"auth": options["auth"]} if "auth" in options else {}
        for _ in range(HOPS):
            response = super().send(request, stream=True, follow_redirects=False, **auth)
            try:
                check_coding(response)
                content = bytearray()
                for piece in response.iter_bytes():
                    added(content, piece)
            finally:
                response.close()
            if not response.has_redirect_location:
                headers = kept_headers(response)
                return httpx2.Response(response.status_code, headers=headers, content=bytes(content), request=request)
            request = followed(request, response)
        raise Refused("redirect", f"{server_of(request.url)} redirects in a loop")
