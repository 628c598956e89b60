"""HTTP to one server with the standard library: short answers, streams, retries, time limits."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import IncompleteRead, RemoteDisconnected
from urllib.parse import quote, urlsplit

from specbench.errors import UsageError, clean
from specbench.serving.faults import Kind, ServerFault
from specbench.serving.sse import DONE, EventTooLong, events

RETRIED = (429, 500, 502, 503, 504)
WAIT_S = 0.5
"""Before the first retry; each further one waits twice as long."""
LONGEST_WAIT_S = 20.0
"""Also where a server asks for more by Retry-After."""
CONNECT_S = 10.0
"""For a connection to stand."""
PART = 1 << 16
SHOWN = 300
"""Characters of a server's own message that are shown."""

HIDDEN = "[key]"
"""Stands for the key where a server's own message holds it."""
_USER = re.compile(r"//[^/]*@")
_BEARER = "Bearer "

Payload = dict[str, object]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and how patient its client is."""

    scheme: str
    host: str
    port: int
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 600.0
    """Without a byte."""
    retries: int = 3
    """After 429 and 5xx."""

    @property
    def url(self) -> str:
        """As a user writes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def key(self) -> str:
        """What must be in no message and no file; empty if there is none."""
        return self.headers.get("Authorization", "").removeprefix(_BEARER)


def address_of(
    url: str,
    where: str,
    *,
    api_key: str = "",
    timeout_s: float = 600.0,
    retries: int = 3,
) -> Address:
    """A base URL as a user gives it, with or without the `/v1` at its end.

    Examples
    --------
    >>> address_of("http://127.0.0.1:8000/v1/", "--engine-arg").url
    'http://127.0.0.1:8000'
    """
    hint = "http://HOST:PORT, for example http://127.0.0.1:8000"
    # A user's password may stand in it.
    shown = _USER.sub("//", url)
    try:
        parts = urlsplit(url.strip())
        port = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError as err:
        told = _USER.sub("//", str(err))
        raise UsageError(f'"{shown}" is no URL ({told})', where=where, hint=hint) from err
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UsageError(f'"{shown}" is no http URL', where=where, hint=hint)
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError(
            f'"{parts.hostname}": a base URL has no user, query or #', where=where, hint=hint
        )
    headers = {"Authorization": f"{_BEARER}{api_key}"} if api_key else {}
    return Address(
        parts.scheme,
        parts.hostname,
        port or (443 if parts.scheme == "https" else 80),
        quote(parts.path.rstrip("/").removesuffix("/v1"), safe="/%!$&'()*+,;=:@~"),
        headers,
        timeout_s,
        retries,
    )


def get(address: Address, path: str) -> str:
    """The body of a GET, for answers of a few kilobytes; a status above 299 is a fault."""
    with opened(address, "GET", path) as answer:
        return answer.text()


def get_json(address: Address, path: str) -> Payload:
    """A JSON object."""
    return as_object(get(address, path), f"{address.url}{path}")


def post_json(address: Address, path: str, body: Payload) -> Payload:
    """The JSON object that answers a JSON object."""
    with opened(address, "POST", path, encoded(body)) as answer:
        return as_object(answer.text(), f"{address.url}{path}")


def encoded(body: Payload) -> bytes:
    """A JSON object as it is sent."""
    return json.dumps(body, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer with a good status, its body not read yet."""

    response: http.client.HTTPResponse
    sent_s: float
    """`perf_counter` when the request left; the connection was there before."""
    url: str

    def parts(self) -> Iterator[bytes]:
        """The body as it arrives."""
        with _reading(self.url):
            while part := self.response.read1(PART):
                yield part

    def text(self) -> str:
        """The whole body."""
        return b"".join(self.parts()).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    at_s: float
    """`perf_counter` when it had arrived."""
    payload: Payload
    """Empty for the mark of the end."""

    @property
    def last(self) -> bool:
        """Whether the server says that nothing follows."""
        return not self.payload


def stream(answer: Answer) -> Iterator[Event]:
    """The JSON events of an answer; the mark of the end is the last one."""
    parts = answer.parts()
    try:
        for data in events(parts):
            at = time.perf_counter()
            if data.strip() == DONE:
                yield Event(at, {})
                # Read on, so that closing resets no connection; all that matters is there.
                with suppress(ServerFault):
                    deque(parts, maxlen=0)
                return
            yield Event(at, as_object(data, answer.url))
    except EventTooLong as err:
        raise ServerFault("reply", f"{answer.url}: {err}") from err


@contextmanager
def opened(address: Address, method: str, path: str, body: bytes | None = None) -> Iterator[Answer]:
    """One request and the answer to it; 429 and 5xx are tried again, a bounded number of times."""
    for left in range(address.retries, -1, -1):
        connection = _connection(address)
        try:
            answer = _asked(connection, address, method, path, body)
            if answer.response.status in RETRIED and left:
                time.sleep(_wait(answer.response, address.retries - left))
                continue
            _refuse_status(answer)
            yield answer
            return
        except ServerFault as fault:
            if address.key and address.key in fault.what:
                told = fault.what.replace(address.key, HIDDEN)
                raise ServerFault(fault.kind, told, fault.status) from None
            raise
        finally:
            connection.close()


def _connection(address: Address) -> http.client.HTTPConnection:
    """A connection that stands, so that a request's time holds no handshake."""
    secure = address.scheme == "https"
    make = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    patience = min(CONNECT_S, address.timeout_s)
    connection = make(address.host, address.port, timeout=patience)
    with _reading(address.url, "down"):
        connection.connect()
        connection.sock.settimeout(address.timeout_s)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _asked(
    connection: http.client.HTTPConnection,
    address: Address,
    method: str,
    path: str,
    body: bytes | None,
) -> Answer:
    headers = {"Accept": "*/*", "Connection": "close", **address.headers}
    if body is not None:
        headers["Content-Type"] = "application/json"
    url = f"{address.url}{path}"
    with _reading(url):
        sent = time.perf_counter()
        connection.request(method, address.path + path, body, headers)
        return Answer(connection.getresponse(), sent, url)


def _wait(response: http.client.HTTPResponse, tried: int) -> float:
    """Seconds before the next try: what the server asks for, else doubling from `WAIT_S`."""
    asked = response.getheader("Retry-After", "")
    seconds = float(asked) if asked.isdecimal() else WAIT_S * 2**tried
    return min(seconds, LONGEST_WAIT_S)


def _refuse_status(answer: Answer) -> None:
    status = answer.response.status
    if status < 300:
        return
    said = _message(answer.text())
    kind: Kind = "busy" if status in RETRIED else "refused"
    raise ServerFault(kind, f"{answer.url} answers {status}{said and f': {said}'}", status)


def _message(body: str) -> str:
    """What a server says of an error: OpenAI's `error.message`, FastAPI's `detail`, or text."""
    try:
        found = json.loads(body)
    except ValueError:
        found = body
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    text = found if isinstance(found, str) else json.dumps(found)
    return " ".join(clean(text).split())[:SHOWN]


def as_object(text: str, where: str) -> Payload:
    """A JSON object in a server's answer."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise ServerFault("reply", f"{where} does not answer in JSON") from err
    if not isinstance(found, dict) or not found:
        raise ServerFault("reply", f"{where} answers with no JSON object")
    return found


@contextmanager
def _reading(url: str, kind: Kind = "cut") -> Iterator[None]:
    """Name what goes wrong on the wire."""
    try:
        yield
    except TimeoutError as err:
        raise ServerFault("timeout", f"{url} is silent: {err}") from err
    except ssl.SSLError as err:
        told = getattr(err, "verify_message", "") or err.reason or err
        raise ServerFault("down", f"{url}: no TLS connection ({told})") from err
    except RemoteDisconnected as err:
        raise ServerFault("cut", f"{url}: the server ended the connection unanswered") from err
    except http.client.HTTPException as err:
        told = "the answer breaks off" if isinstance(err, IncompleteRead) else f"no HTTP ({err!r})"
        raise ServerFault("cut", f"{url}: {told}") from err
    except OSError as err:
        told = "cannot be reached" if kind == "down" else "the connection broke"
        raise ServerFault(kind, f"{url}: {told} ({err.strerror or err})") from err
