"""Replies that a server might give and that no client expects, each with what may come of it.

`ODD` is a table: the tests run through it once, and so does the long suite of faults. Every reply is made for the
call that it answers, so that an answer kept can be told by its text.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

try:
    from factories.servers import Call, Raw, Reply, Server
except ImportError:  # imported from outside the tests
    from factories.servers import Call, Raw, Reply, Server  # type: ignore[import-not-found,no-redef]

Make = Callable[[Server, Call], "Reply | Raw | str"]
ANSWER = "answer"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
DEEP = 200_000


@dataclass(frozen=True)
class Odd:
    """``outcomes``: `ANSWER` or the kinds of failure that it may become. ``text``: the answer's text where it is kept
    and is not that of a good reply. ``slow``: it takes as long as the client's timeout."""

    name: str
    make: Make
    outcomes: frozenset[str]
    text: str | None = None
    slow: bool = False


ODD: list[Odd] = []


def _odd(name: str, *outcomes: str, text: str | None = None, slow: bool = False) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        ODD.append(Odd(name, make, frozenset(outcomes), text, slow))
        return make

    return add


def _json(text: str | bytes, status: int = 200, **headers: str) -> Reply:
    body = text if isinstance(text, bytes) else text.encode()
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, body


def _edited(name: str, outcome: str, edit: Callable[[dict[str, Any]], object], text: str | None = None) -> None:
    """A good chat reply with one thing changed."""

    def make(server: Server, call: Call) -> Reply:
        body = server.chat_reply(call)
        edit(body)
        return _json(json.dumps(body))

    ODD.append(Odd(name, make, frozenset({outcome}), text))


def _spelled(name: str, outcome: str, before: str, after: str, text: str | None = None) -> None:
    """A good chat reply whose JSON is spelled another way."""

    def make(server: Server, call: Call) -> Reply:
        written = json.dumps(server.chat_reply(call))
        assert before in written
        return _json(written.replace(before, after, 1))

    ODD.append(Odd(name, make, frozenset({outcome}), text))


def _say(text: object) -> Callable[[dict[str, Any]], object]:
    def edit(body: dict[str, Any]) -> None:
        choice = body["choices"][0]
        choice["message"]["content"] = text
        if isinstance(text, str):
            choice["logprobs"] = {"content": [{"token": text, "logprob": -0.5}]} if choice["logprobs"] else None

    return edit


def _use(**counts: object) -> Callable[[dict[str, Any]], object]:
    return lambda body: body.update(usage={"prompt_tokens": 7, "completion_tokens": 3} | counts)


def _token(field: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda body: body["choices"][0]["logprobs"]["content"][0].update({field: value})


# texts that UTF-8, a terminal or a C string cannot hold

_edited("lone high surrogate in the text", ANSWER, _say("a\ud83d b"), "a\ufffd b")
_edited("lone low surrogate in the text", ANSWER, _say("\udc80"), "\ufffd")
_edited("surrogates in the wrong order", ANSWER, _say("\ude00\ud83d"), "\ufffd\ufffd")
_edited("a pair of surrogates, which is a character", ANSWER, _say("\U0001f600"), "\U0001f600")
_edited("lone surrogate in a token", ANSWER, _token("token", "\ud83d"))
_edited("lone surrogate in the model's name", ANSWER, lambda body: body.update(model="stub\udfff"))
_edited("lone surrogate in why it ended", ANSWER, lambda body: body["choices"][0].update(finish_reason="stop\ud800"))
_edited(
    "lone surrogate among the most likely tokens",
    ANSWER,
    _token("top_logprobs", [{"token": "\ud800", "logprob": -1.0}]),
)
_edited("NUL in the text", ANSWER, _say("a\x00b"), "a\x00b")
_edited("escape sequences in the text", ANSWER, _say("\x1b]52;c;aGk=\x07\x9b31m"), "\x1b]52;c;aGk=\x07\x9b31m")
_edited("a text of white space", ANSWER, _say(" \n\t"), " \n\t")
_edited("an empty text", ANSWER, _say(""), "")
_edited("a text of 300,000 characters", ANSWER, _say("é" * 300_000), "é" * 300_000)
_edited("noncharacters and bidi overrides", ANSWER, _say("\ufffe\uffff\u202eabc"), "\ufffe\uffff\u202eabc")


# numbers that are none

_edited("10**30 prompt tokens", ANSWER, _use(prompt_tokens=10**30))
_edited("2**63 prompt tokens", ANSWER, _use(prompt_tokens=2**63))
_edited("negative prompt tokens", ANSWER, _use(prompt_tokens=-5))
_edited("prompt tokens as a float", ANSWER, _use(prompt_tokens=7.5))
_edited("prompt tokens as a bool", ANSWER, _use(prompt_tokens=True))
_edited("prompt tokens as a string", ANSWER, _use(prompt_tokens="7"))
_edited("prompt tokens as an object", ANSWER, _use(prompt_tokens={"n": [7]}))
_edited("10**30 completion tokens", ANSWER, _use(completion_tokens=10**30))
_edited("usage is a list", ANSWER, lambda body: body.update(usage=[1, 2]))
_edited("usage is missing", ANSWER, lambda body: body.pop("usage"))
_spelled("a count of 5,000 digits", ANSWER, '"completion_tokens": ', '"completion_tokens": ' + "9" * 5000)
_spelled("a count of NaN", ANSWER, '"completion_tokens": ', '"completion_tokens": NaN, "x": ')
_spelled("a count of Infinity", ANSWER, '"prompt_tokens": ', '"prompt_tokens": Infinity, "x": ')
_spelled("a count of 1e400", ANSWER, '"prompt_tokens": ', '"prompt_tokens": 1e400, "x": ')
_edited("a log-probability of NaN", "malformed", _token("logprob", float("nan")))
_edited("a log-probability of -Infinity", "malformed", _token("logprob", float("-inf")))
_edited("a log-probability of 10**400", "malformed", _token("logprob", 10**400))
_edited("a log-probability of -10**400", "malformed", _token("logprob", -(10**400)))
_edited("a log-probability above 0", "malformed", _token("logprob", 0.5))
_edited("a log-probability as a string", "malformed", _token("logprob", "-0.1"))
_edited("a token that is a number", "malformed", _token("token", 10**30))
_edited("a log-probability is missing", "malformed", lambda body: body["choices"][0]["logprobs"]["content"][0].clear())


# shapes

_edited("the choice's number is a string", ANSWER, lambda body: body["choices"][0].update(index="first"))
_edited("the choice's number is 10**30", ANSWER, lambda body: body["choices"][0].update(index=10**30))
_edited("the choice's number is a list", ANSWER, lambda body: body["choices"][0].update(index=[[]]))
_edited("the model is an object", ANSWER, lambda body: body.update(model={"name": "x"}))
_edited("the model's name is a million characters long", ANSWER, lambda body: body.update(model="m" * 1_000_000))
_edited("why it ended is a number", ANSWER, lambda body: body["choices"][0].update(finish_reason=10**30))
_edited("no choices", "malformed", lambda body: body.update(choices=[]))
_edited("choices are an object", "malformed", lambda body: body.update(choices={"0": {}}))
_edited("a choice is null", "malformed", lambda body: body.update(choices=[None]))
_edited("two choices", "malformed", lambda body: body.update(choices=body["choices"] * 2))
_edited("the message is a list", "malformed", lambda body: body["choices"][0].update(message=[]))
_edited("the text is null", "malformed", _say(None))
_edited("the text is a number", "malformed", _say(10**30))
_edited(
    "the text comes in parts", ANSWER, _say([{"type": "text", "text": "one "}, {"type": "text", "text": 2}]), "one "
)
_edited("log-probabilities are a string", "malformed", lambda body: body["choices"][0].update(logprobs="none"))
_edited("an error of an odd kind beside the choices", ANSWER, lambda body: body.update(error=[[1]]))
_edited(
    "a refusal that is an object", "refusal", lambda body: body["choices"][0]["message"].update(refusal={"why": [1]})
)


@_odd("a key given twice", ANSWER)
def _(server: Server, call: Call) -> Reply:
    return _json('{"model": "first", ' + json.dumps(server.chat_reply(call))[1:])


@_odd("a bare line break and a tab inside the text", ANSWER, text="one\n\ttwo")
def _(server: Server, call: Call) -> Reply:
    body = server.chat_reply(call)
    _say("one@@two")(body)
    return _json(json.dumps(body).replace("@@", "\n\t"))


@_odd("a byte order mark", ANSWER)
def _(server: Server, call: Call) -> Reply:
    return _json(b"\xef\xbb\xbf" + json.dumps(server.chat_reply(call)).encode())


@_odd("UTF-16", ANSWER)
def _(server: Server, call: Call) -> Reply:
    return _json(json.dumps(server.chat_reply(call)).encode("utf-16"))


@_odd("bytes that are not UTF-8", ANSWER, text="a\ufffdb")
def _(server: Server, call: Call) -> Reply:
    body = server.chat_reply(call)
    _say("a@@b")(body)
    return _json(json.dumps(body).encode().replace(b"@@", b"\xff"))


for _charset in ("zlib_codec", "undefined", "utf-7", "no-such", "idna"):

    @_odd(f"the character set '{_charset}'", ANSWER)
    def _(server: Server, call: Call, charset: str = _charset) -> Reply:
        return _json(json.dumps(server.chat_reply(call)), content_type=f"application/json; charset={charset}")


@_odd("200,000 nested brackets", "malformed")
def _(server: Server, call: Call) -> Reply:
    return _json("[" * DEEP + "]" * DEEP)


@_odd("200,000 nested brackets in the usage", "malformed")
def _(server: Server, call: Call) -> Reply:
    body = server.chat_reply(call)
    body["usage"] = "@@"
    return _json(json.dumps(body).replace('"@@"', "[" * DEEP + "]" * DEEP))


@_odd("900 nested brackets and a lone surrogate", ANSWER, "malformed")
def _(server: Server, call: Call) -> Reply:
    body = server.chat_reply(call)
    body["usage"] = "@@"
    return _json(json.dumps(body).replace('"@@"', "[" * 900 + r'"\ud800"' + "]" * 900))


@_odd("an error of 200,000 nested brackets", "malformed")
def _(server: Server, call: Call) -> Reply:
    return _json('{"error": {"message": ' + "[" * DEEP + "]" * DEEP + "}}")


@_odd("HTTP 500 with 200,000 nested brackets", "transient", "malformed")
def _(server: Server, call: Call) -> Reply:
    return _json("[" * DEEP + "]" * DEEP, 500)


@_odd("HTTP 400 with 900 nested brackets", "request", "malformed")
def _(server: Server, call: Call) -> Reply:
    return _json('{"error": {"message": ' + "[" * 900 + "]" * 900 + "}}", 400)


@_odd("HTTP 400 with lone surrogates", "request")
def _(server: Server, call: Call) -> Reply:
    return _json(r'{"error": {"message": "bad \ud800", "code": ["\udfff"]}}', 400)


@_odd("HTTP 400 with a character set of its own", "request")
def _(server: Server, call: Call) -> Reply:
    return _json('{"error": {"message": "bad"}}', 400, content_type="application/json; charset=zlib_codec")


@_odd("HTTP 400 with escape sequences and a megabyte", "request")
def _(server: Server, call: Call) -> Reply:
    return _json(json.dumps({"error": {"message": "\x1b]52;c;aGk=\x07" * 100_000}}), 400)


for _name, _body in {
    "nothing at all": b"",
    "null": b"null",
    "a number": b"12",
    "a string": b'"hello"',
    "a list": b"[]",
    "an HTML page": b"<html><body>sign in</body></html>",
    "half of the JSON": b'{"choices": [{"index": 0, "mess',
    "an event stream": b'data: {"choices": []}\n\ndata: [DONE]\n\n',
    "NUL bytes": b"\x00" * 1000,
}.items():

    @_odd(f"a body that is {_name}", "malformed")
    def _(server: Server, call: Call, body: bytes = _body) -> Reply:
        return _json(body)


for _status in (204, 304, 418, 599, 999):

    @_odd(f"HTTP {_status}", "malformed", "request", "transient")
    def _(server: Server, call: Call, status: int = _status) -> Reply:
        return _json(b"" if status in (204, 304) else b"{}", status)


# compression


@_odd("gzip", ANSWER)
def _(server: Server, call: Call) -> Reply:
    return _json(gzip.compress(json.dumps(server.chat_reply(call)).encode()), content_encoding="gzip")


@_odd("gzip that is none", "malformed", "transient")
def _(server: Server, call: Call) -> Reply:
    return _json(json.dumps(server.chat_reply(call)), content_encoding="gzip")


@_odd("a compression that nobody asked for", "malformed")
def _(server: Server, call: Call) -> Reply:
    return _json(json.dumps(server.chat_reply(call)), content_encoding="zstd")


@_odd("gzip twice over", "malformed")
def _(server: Server, call: Call) -> Reply:
    once = gzip.compress(json.dumps(server.chat_reply(call)).encode())
    return _json(gzip.compress(once), content_encoding="gzip, gzip")


@cache
def _bomb(megabytes: int) -> bytes:
    squeeze = zlib.compressobj(9, wbits=31)
    block = b" " * (1 << 20)
    return b"".join(squeeze.compress(block) for _ in range(megabytes)) + squeeze.flush()


@_odd("a gzip bomb of 100 MB", "malformed")
def _(server: Server, call: Call) -> Reply:
    return _json(_bomb(100), content_encoding="gzip")


# bodies without end, too large, too slow


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


@_odd("a body without end", "malformed")
def _(server: Server, call: Call) -> Raw:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(_chunk(b" " * (1 << 20)))
            await writer.drain()

    return write


@_odd("a content-length of 10**30", "transient")
def _(server: Server, call: Call) -> Raw:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"content-length: 1" + b"0" * 30 + b"\r\n\r\n")
        while True:
            writer.write(b" " * (1 << 20))
            await writer.drain()

    return write


@_odd("an error page without end", "malformed")
def _(server: Server, call: Call) -> Raw:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 X\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(_chunk(b"x" * (1 << 20)))
            await writer.drain()

    return write


def _dripping(head: bytes, drop: bytes) -> Make:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(0.05)

    return lambda server, call: write


_odd("a byte at a time", "timeout", slow=True)(_dripping(HEAD + b"content-length: 100000\r\n\r\n", b" "))
_odd("headers a byte at a time", "timeout", slow=True)(_dripping(HEAD + b"x: ", b"y"))
_odd("100 Continue again and again", "timeout", slow=True)(_dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"))


@_odd("a flood of headers", "transient")
def _(server: Server, call: Call) -> Raw:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        while True:
            writer.write(b"".join(b"x-%d: %b\r\n" % (i, b"y" * 100) for i in range(1000)))
            await writer.drain()

    return write


@_odd("one header of a megabyte", "transient")
def _(server: Server, call: Call) -> Raw:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"x: " + b"y" * (1 << 20) + b"\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()

    return write


@_odd("no HTTP at all", "transient")
def _(server: Server, call: Call) -> Raw:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()

    return write


@_odd("fewer bytes than it said", "transient")
def _(server: Server, call: Call) -> Raw:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"content-length: 5000\r\n\r\n" + json.dumps(server.chat_reply(call)).encode())
        await writer.drain()

    return write


@_odd("the connection is dropped", "transient")
def _(server: Server, call: Call) -> str:
    return "drop"


# waiting and going elsewhere

for _wait in ("nan", "inf", "-5", "1e400", "soon", "9" * 400, "Fri, 31 Dec 99999 23:59:59 GMT"):

    @_odd(f"429 with Retry-After {_wait[:40]}", "rate_limit")
    def _(server: Server, call: Call, wait: str = _wait) -> Reply:
        return _json('{"error": {"message": "slow down"}}', 429, retry_after=wait)


for _status, _where in (
    (301, "/v1/elsewhere"),
    (302, "http://127.0.0.1:1/v1"),
    (303, ""),
    (307, "https://user:secret@elsewhere.invalid/v1"),
    (307, "http://["),
    (307, "//"),
    (308, "file:///etc/passwd"),
    (307, "/v1/chat/completions"),
):

    @_odd(f"{_status} to '{_where}'", "redirect", "request", "malformed", "transient")
    def _(server: Server, call: Call, status: int = _status, where: str = _where) -> Reply:
        return _json(b"", status, location=where)
