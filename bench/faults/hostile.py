"""A back that attacks: valid and broken messages, as fast as the lead lets it.

    python -m bench.faults.hostile --lead http://127.0.0.1:5555 --seed 1

Each connection has one of the `ATTACKS`, until the lead closes it or its time is over; then comes the next.
Most come from a new address and have a new name, so that the lead cannot lock them out; the others find out
that it does.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import random
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from shared.errors import ProtocolError
from shared.llama.vocabulary import Vocabulary
from shared.logs import configure_logging
from shared.models.builtin import builtin_draft
from shared.protocol import (
    MAX_BACK_MESSAGE_BYTES,
    MAX_DRAFT_TOKENS,
    MAX_LEAD_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    Close,
    Draft,
    Extend,
    Hello,
    Open,
    VocabularyId,
    parse_lead_message,
)

_SAME_AGAIN = 0.2
"""The share of connections that come from the address, and under the name, of the one before."""
_SECONDS_PER_ATTACK = 1.0
_FRAMES_PER_SECOND = 400.0
"""The lead's machine is also this one: enough to keep its front busy, too little to starve the others."""

_SENT = re.compile(r"(\w+): (\d+) frames$", re.MULTILINE)

log = logging.getLogger("bench.hostile")

Frame = str | bytes
Attack = Callable[["Attacker"], Frame]


class Attacker:
    """Makes frames from what the lead has said about sequences. `last` is the frame made before."""

    def __init__(self, rng: random.Random, n_vocab: int) -> None:
        self.rng = rng
        self._n_vocab = n_vocab
        self._committed: dict[str, int] = {}
        self.last: Frame = "null"

    def take(self, frame: str | bytes) -> None:
        """Follow what the lead says; anything else than sequences is ignored."""
        with contextlib.suppress(ProtocolError):
            match parse_lead_message(frame):
                case Open(sequence=sequence, tokens=tokens):
                    self._committed[sequence] = len(tokens)
                case Extend(sequence=sequence, start=start, tokens=tokens):
                    self._committed[sequence] = start + len(tokens)
                case Close(sequence=sequence):
                    self._committed.pop(sequence, None)

    def attack(self, name: str) -> Frame:
        """The next frame of this attack."""
        self.last = ATTACKS[name](self)
        return self.last

    def draft(self, n_tokens: int = 16, base: int | None = None) -> Draft:
        """Random tokens for some sequence that the lead has opened, or for one that it never did."""
        sequence, n_committed = self.rng.choice([*self._committed.items()] or [("nobody", 5)])
        tokens = [self.rng.randrange(self._n_vocab) for _ in range(n_tokens)]
        parents = [self.rng.randint(-1, index - 1) for index in range(n_tokens)]
        return Draft(
            sequence=sequence,
            base=n_committed if base is None else base,
            tokens=tokens,
            parents=self.rng.choice((None, parents)),
            confidences=[1.0] * n_tokens,
        )


def _random(attacker: Attacker) -> Frame:
    return attacker.draft().model_dump_json()


def _stale(attacker: Attacker) -> Frame:
    return attacker.draft(MAX_DRAFT_TOKENS, base=0).model_dump_json()


def _duplicated(attacker: Attacker) -> Frame:
    """Most frames repeat the one before."""
    again = attacker.rng.random() < 0.8 and attacker.last != "null"  # noqa: PLR2004
    return attacker.last if again else _random(attacker)


def _oversized(attacker: Attacker) -> Frame:
    """Nearly the largest frame: ignored fields around a draft."""
    fields = attacker.draft(MAX_DRAFT_TOKENS).model_dump() | {
        "ignored": "x" * (MAX_BACK_MESSAGE_BYTES - 2000)
    }
    return json.dumps(fields)


def _invalid(attacker: Attacker) -> Frame:
    """Well-formed drafts that break a limit."""
    fields = attacker.draft().model_dump()
    broken = attacker.rng.choice(
        (
            {"base": (1 << 31) - 1},
            {"tokens": [(1 << 31) - 1], "parents": None, "confidences": None},
            {"sequence": "s" * 64},
            {"tokens": list(range(64)), "parents": [-1] * 64, "confidences": [0.0] * 64},
        )
    )
    return json.dumps(fields | broken)


def _garbage(attacker: Attacker) -> Frame:
    rng = attacker.rng
    return rng.choice(
        (
            rng.randbytes(rng.randint(0, 2000)),
            "[" * 5000,
            json.dumps({"type": "draft", "sequence": 1, "base": -1, "tokens": "no"}),
            json.dumps({"type": "hello"}),
            "x" * (MAX_BACK_MESSAGE_BYTES + 1),
            '{"type":"draft","sequence":"\\u0000\\ud800","base":1e999,"tokens":[0]}',
            "",
        )
    )


@dataclass(frozen=True, slots=True)
class Identity:
    """By what a lead without keys tells one back from another. `address` is local; None: any."""

    name: str
    address: str | None


def identities(rng: random.Random, *, has_addresses: bool) -> Iterator[Identity]:
    """One for each connection, without end."""
    while True:
        address = f"127.{rng.randint(1, 254)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}"
        identity = Identity(f"hostile-{rng.randrange(1 << 32)}", address if has_addresses else None)
        yield identity
        while rng.random() < _SAME_AGAIN:
            yield identity


def has_loopback_network() -> bool:
    """Whether all addresses that begin with 127 are this machine's, as on Linux."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.1.2.3", 0))
        except OSError:
            return False
        return True


def n_frames_sent(log_text: str) -> Counter[str]:
    """By attack, from the log of this program."""
    sent: Counter[str] = Counter()
    for name, n in _SENT.findall(log_text):
        sent[name] += int(n)
    return sent


ATTACKS: Mapping[str, Attack] = {
    "random": _random,
    "stale": _stale,
    "duplicated": _duplicated,
    "oversized": _oversized,
    "invalid": _invalid,
    "garbage": _garbage,
}


async def _attack(url: str, vocabulary: VocabularyId, rng: random.Random) -> None:
    for identity in identities(rng, has_addresses=has_loopback_network()):
        source = (identity.address, 0) if identity.address else None
        attacker = Attacker(rng, vocabulary.n_tokens)
        with contextlib.suppress(OSError, WebSocketException, TimeoutError):
            async with (
                connect(
                    url, max_size=MAX_LEAD_MESSAGE_BYTES, proxy=None, close_timeout=1.0, local_addr=source
                ) as connection,
                asyncio.timeout(_SECONDS_PER_ATTACK),
            ):
                await _stay(connection, attacker, vocabulary, identity.name)
        await asyncio.sleep(0.05)


async def _stay(
    connection: ClientConnection, attacker: Attacker, vocabulary: VocabularyId, back_name: str
) -> None:
    hello = Hello(
        protocol=PROTOCOL_VERSION, name=back_name, vocabulary=vocabulary, n_ctx=2048, n_sequences=64
    )
    await connection.send(hello.model_dump_json())
    name, n_sent = attacker.rng.choice(list(ATTACKS)), 0

    async def listen() -> None:
        async for frame in connection:
            attacker.take(frame)

    listening = asyncio.ensure_future(listen())
    try:
        while not listening.done():
            await connection.send(attacker.attack(name))
            n_sent += 1
            await asyncio.sleep(1 / _FRAMES_PER_SECOND)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        log.info("%s: %d frames", name, n_sent)


def main() -> None:
    """Attack until killed."""
    parser = argparse.ArgumentParser(prog="bench.faults.hostile", description=__doc__)
    parser.add_argument("--lead", required=True)
    parser.add_argument("--model", type=Path, help="for its vocabulary; without it the built-in draft model")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    configure_logging("info")
    vocabulary = Vocabulary.load(arguments.model or builtin_draft()).identify()
    url = f"ws{arguments.lead.removeprefix('http')}/v1/speculation"
    rng = random.Random(arguments.seed)  # noqa: S311 - a seeded choice is wanted
    asyncio.run(_attack(url, vocabulary, rng))


if __name__ == "__main__":
    main()
