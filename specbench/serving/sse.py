"""Server-sent events: the data of each event, as soon as its last byte is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

DONE = "[DONE]"
"""The last event of OpenAI's API."""
LONGEST_EVENT = 1 << 24
"""Characters of one event; what is longer is no answer to a prompt."""


class EventTooLong(ValueError):
    """A stream without the blank line that ends an event."""


def events(parts: Iterable[bytes]) -> Iterator[str]:
    r"""The data of each event in a byte stream that arrives in parts of any size.

    Lines end in CRLF, LF or CR; comments (keep-alive pings) and fields other than `data` are passed
    over; an event that the stream's end cuts off is dropped.

    References
    ----------
    WHATWG HTML, "Server-sent events", parsing and interpreting an event stream.

    Examples
    --------
    >>> list(events([b'data: {"a"', b': 1}\n\n: ping\n\ndata: [DO', b'NE]\r\n\r\n']))
    ['{"a": 1}', '[DONE]']
    """
    data: list[str] = []
    size = 0
    for line in _lines(parts):
        if not line:
            if data:
                yield "\n".join(data)
            data, size = [], 0
        elif line.startswith(b"data:"):
            value = line[5:].removeprefix(b" ").decode("utf-8", "replace")
            size += len(value)
            if size > LONGEST_EVENT:
                raise EventTooLong(f"an event of over {LONGEST_EVENT} characters")
            data.append(value)


def _lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines without their ends; a CR at the end of a part waits for its LF."""
    open_line: list[bytes] = []
    size = 0
    for part in parts:
        size += len(part)
        if size > LONGEST_EVENT:
            raise EventTooLong(f"a line of over {LONGEST_EVENT} bytes")
        open_line.append(part)
        if b"\n" not in part and b"\r" not in part and not open_line[0].endswith(b"\r"):
            # Joined once the line ends, as joining with each part would take its square of time.
            continue
        rest = b"".join(open_line)
        held = rest.endswith(b"\r")
        whole = rest[:-1] if held else rest
        *lines, rest = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if held:
            rest += b"\r"
        open_line, size = [rest], len(rest)
        yield from lines
