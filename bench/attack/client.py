"""Sends attacks over sockets of its own: what is sent is not always HTTP that a library would send."""

import asyncio
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench.attack.requests import Attack, Delivery

_PAUSE_SECONDS = 0.05
_ANSWER_SECONDS = 120.0
_N_PIECES = 4
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_MAX_SHOWN_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came back. status: None without an answer. was_reset: the server broke the connection."""

    status: int | None
    seconds: float
    text: str = ""
    was_reset: bool = False

    @property
    def failed(self) -> bool:
        """A 500, or an error event of that kind in a stream."""
        return '"server_error"' in self.text


async def send(host: str, port: int, attack: Attack) -> Outcome:
    """One attack over a connection of its own. Raises OSError if none can be opened."""
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, port)
    data, was_reset = bytearray(), False
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            try:
                await _write(writer, attack)
            except ConnectionError:  # a server may refuse a body before it has read it
                was_reset = True
            if attack.delivery not in {Delivery.CUT, Delivery.LEFT}:
                await _read(reader, data)
    except ConnectionError:
        was_reset = True
    except TimeoutError:
        return Outcome(None, time.perf_counter() - begun, "no answer in time")
    finally:
        writer.transport.abort()
    match = _STATUS.match(data)
    text = data.decode("utf-8", "replace")
    return Outcome(int(match[1]) if match else None, time.perf_counter() - begun, text, was_reset)


async def _read(reader: asyncio.StreamReader, data: bytearray) -> None:
    """Read the beginning and the end of what arrives until the connection closes."""
    while chunk := await reader.read(1 << 16):
        data += chunk
        if len(data) > 2 * _MAX_SHOWN_BYTES:
            del data[_MAX_SHOWN_BYTES:-_MAX_SHOWN_BYTES]


async def _write(writer: asyncio.StreamWriter, attack: Attack) -> None:
    for number, piece in enumerate(_pieces(attack)):
        if number and attack.delivery is Delivery.SLOW:
            await asyncio.sleep(_PAUSE_SECONDS)
        writer.write(piece)
        await writer.drain()


def _pieces(attack: Attack) -> Iterator[bytes]:
    body = attack.body
    if attack.delivery is Delivery.CHUNKED:
        size = max(1, -(-len(body) // _N_PIECES))
        chunks = [body[at : at + size] for at in range(0, len(body), size)]
        yield _head(attack, "Transfer-Encoding: chunked")
        yield b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        return
    yield _head(attack, f"Content-Length: {len(body)}")
    if attack.delivery is Delivery.CUT:
        yield body[: len(body) // 2]
    elif attack.delivery is Delivery.SLOW:
        size = max(1, -(-len(body) // _N_PIECES))
        yield from (body[at : at + size] for at in range(0, len(body), size))
    else:
        yield body


def _head(attack: Attack, length: str) -> bytes:
    lines = [f"{attack.method} {attack.path} HTTP/1.1", "Host: localhost", "Connection: close", length]
    if attack.content_type:
        lines.append(f"Content-Type: {attack.content_type}")
    return "\r\n".join([*lines, "", ""]).encode()
