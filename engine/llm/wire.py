"""The HTTP client below the official one: limits the size of replies and restricts redirects.

httpx2 is heavy, so this module is imported only when the first connection is opened.
"""

from __future__ import annotations

from typing import Any

import httpx2

from ..endpoint import HOPS, Refused, added, check_coding, followed, kept_headers, server_of


class Client(httpx2.AsyncClient):
    """Reads at most `LARGEST` bytes of any reply and never sends a prompt to a server that the user did not name.

    Returned replies are complete and have only the headers that are needed. Raises `Refused`.
    """

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        auth = {"auth": options["auth"]} if "auth" in options else {}
        for _ in range(HOPS):
            response = await super().send(request, stream=True, follow_redirects=False, **auth)
            try:
                check_coding(response)
                content = bytearray()
                async for piece in response.aiter_bytes():
                    added(content, piece)
            finally:
                await response.aclose()
            if not response.has_redirect_location:
                headers = kept_headers(response)
                return httpx2.Response(response.status_code, headers=headers, content=bytes(content), request=request)
            request = followed(request, response)
        raise Refused("redirect", f"{server_of(request.url)} redirects in a loop")
