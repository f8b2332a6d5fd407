"""A back that floods its lead, whatever the lead's limits are: with drafts, with bytes, or with connections.

    python -m bench.flooding_back --lead http://127.0.0.1:5555 --kind stale --rate 1500

`stale` drafts follow no committed token at all (base 0). `wrong` ones have random tokens, and follow the
newest committed ones. `large` ones are `stale`, with 63 KB of fields that the lead ignores. `rejoin` says
hello and leaves, again and again. When the lead ends the connection, it connects again at once.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import random
from collections.abc import Callable

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from bench import back_program
from bench.until_signal import until_signal
from shared.llama.vocabulary import Vocabulary
from shared.protocol import Close, Extend, Hello, LeadMessage, Open, parse_lead_message

log = logging.getLogger("bench.flooding_back")

KINDS = ("stale", "wrong", "large", "rejoin")
CLOSED = "the lead has closed the connection"
_N_TOKENS = 16
_IGNORED = {"ignored": [0] * 31_000}
"""62 KB in JSON."""
_AGAIN_SECONDS = 0.05
_TICK_SECONDS = 0.005
"""Messages are sent in bursts, because a timer is not precise enough for one at a time."""


class Flood:
    """Knows the sequences that the lead has opened, and what to send next."""

    def __init__(self, kind: str, n_vocab: int, rng: random.Random) -> None:
        self._kind = kind
        self._n_vocab = n_vocab
        self._rng = rng
        self._n_committed: dict[str, int] = {}

    def on_message(self, message: LeadMessage) -> None:
        """Note what has been committed."""
        match message:
            case Open():
                self._n_committed[message.sequence] = len(message.tokens)
            case Extend():
                self._n_committed[message.sequence] = message.start + len(message.tokens)
            case Close():
                self._n_committed.pop(message.sequence, None)

    def reset(self) -> None:
        """The connection has ended."""
        self._n_committed.clear()

    def next(self) -> str | None:
        """A draft for one of the sequences; None while there is none."""
        if not self._n_committed:
            return None
        sequence, n_committed = self._rng.choice(list(self._n_committed.items()))
        draft = {
            "type": "draft",
            "sequence": sequence,
            "base": n_committed if self._kind == "wrong" else 0,
            "tokens": [self._rng.randrange(self._n_vocab) for _ in range(_N_TOKENS)],
        }
        return json.dumps(draft | _IGNORED if self._kind == "large" else draft, separators=(",", ":"))


async def flood(url: str, hello: Hello, attack: Flood, rate: float, *, stays: bool) -> None:
    """Send `rate` messages, or connect `rate` times a second, until cancelled.

    `stays`: until it is sent away.
    """
    while True:
        with contextlib.suppress(OSError, ConnectionClosed, InvalidHandshake, TimeoutError):
            async with connect(url, proxy=None, close_timeout=1) as connection:
                await connection.send(hello.model_dump_json())
                if stays:
                    await _stay(connection, attack, rate)
                else:
                    await connection.recv()
        attack.reset()
        await asyncio.sleep(_AGAIN_SECONDS if stays else 1 / rate)


async def _stay(connection: ClientConnection, attack: Flood, rate: float) -> None:
    log.info("drafting for the lead, %g messages/s", rate)
    sending = asyncio.ensure_future(_send(connection, attack.next, rate))
    try:
        async for frame in connection:
            attack.on_message(parse_lead_message(frame))
    finally:
        log.info("%s: %s", CLOSED, connection.close_reason)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _send(connection: ClientConnection, following: Callable[[], str | None], rate: float) -> None:
    clock = asyncio.get_running_loop().time
    due = clock()
    while True:
        while due <= clock():
            due += 1 / rate
            if message := following():
                await connection.send(message)
        await asyncio.sleep(_TICK_SECONDS)


def main() -> None:
    """Flood until a signal."""
    parser = back_program.parser("bench.flooding_back", __doc__)
    parser.add_argument("--name", default="flood")
    parser.add_argument("--kind", choices=KINDS, default="stale")
    parser.add_argument("--rate", type=float, default=1500.0, help="messages, or connections, per second")
    asyncio.run(until_signal(_run(back_program.parse(parser))))


async def _run(arguments: argparse.Namespace) -> None:
    vocabulary = Vocabulary.load(arguments.model)
    hello = back_program.hello(arguments.name, vocabulary)
    rng = random.Random(arguments.seed)  # noqa: S311 - a seeded choice is wanted
    attack = Flood(arguments.kind, vocabulary.n_tokens, rng)
    log.info("drafting for %s", arguments.lead)
    await flood(
        back_program.url(arguments.lead), hello, attack, arguments.rate, stays=arguments.kind != "rejoin"
    )


if __name__ == "__main__":
    main()
