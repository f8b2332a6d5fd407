"""A hostile back, which sends valid drafts, absurd drafts and invalid messages.

python -m lab.campaign.hostile_back --lead http://127.0.0.1:5555 --seed 1

Each connection of the program runs one of the `ATTACKS` until the lead closes it or its time is over. Then
the next connection starts. Most connections come from a new address with a new name, so that the lead cannot
lock them out. The other connections test that the lead locks them out.
"""

import argparse
import asyncio
import contextlib
import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from lab.campaign.hostile_json import Message, Mutator, written
from shared.errors import ProtocolError
from shared.llama.vocabulary import Vocabulary
from shared.logs import configure_logging
from shared.model_files.builtin import builtin_draft
from shared.protocol import (
    MAX_BACK_MESSAGE_BYTES,
    MAX_DRAFT_TOKENS,
    MAX_LEAD_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    Close,
    Extend,
    Hello,
    LeadMessage,
    Open,
    VocabularyId,
    parse_lead_message,
)

_SAME_AGAIN = 0.2
"""The share of connections that repeat the address and the name of the connection before."""
_SECONDS_PER_ATTACK = 1.0
_FRAMES_PER_SECOND = 400.0
"""Enough to keep the lead's front busy, too little to starve the other programs on this machine."""
_LARGE = "x" * (MAX_BACK_MESSAGE_BYTES - 2500)

_SENT = re.compile(r"(\w+): (\d+) frames$", re.MULTILINE)

log = logging.getLogger("lab.campaign.hostile_back")

Frame = str | bytes


class KnownSequences(dict[str, int]):
    """The sequences that a lead has opened for a back, with the number of their tokens."""

    def follow(self, message: LeadMessage) -> None:
        """Update the sequences from a message of the lead."""
        match message:
            case Open(sequence=sequence, tokens=tokens):
                self[sequence] = len(tokens)
            case Extend(sequence=sequence, start=start, tokens=tokens):
                self[sequence] = start + len(tokens)
            case Close(sequence=sequence):
                self.pop(sequence, None)


class HostileMessages:
    """Generates messages of a back, from drafts of the right shape to bytes that are not a message."""

    def __init__(self, rng: random.Random, vocabulary: VocabularyId) -> None:
        self._rng = rng
        self._mutator = Mutator(rng)
        self._vocabulary = vocabulary
        self._last: Frame = "{}"

    def first_frame(self, name: str) -> Frame:
        """Return the first frame of a connection, in most cases a valid hello."""
        n = self._rng.choice((1, 3, 1024))
        hello = Hello(
            protocol=PROTOCOL_VERSION, name=name, vocabulary=self._vocabulary, n_ctx=0, n_sequences=n
        ).model_dump()
        return written(hello) if self._happens(0.95) else self._mutator.broken(hello)

    def frame(self, known: Mapping[str, int], attack: str = "mixed") -> Frame:
        """Return a frame of an attack, not its first. known: the numbers of tokens of open sequences."""
        self._last = ATTACKS[attack](self, known)
        return self._last

    def draft(self, known: Mapping[str, int]) -> Message:
        """Return a draft of the right shape, with contents from right to absurd."""
        rng = self._rng
        sequence, n_committed = self._sequence(known)
        n = rng.choice((1, 1, 2, 4, 8, 8, 16, 64))
        base = max(0, n_committed - rng.choice((0, 0, 0, 1, 2, 5, 63, 64, 65, n_committed)))
        if self._happens(0.001):  # a hundred of them end a connection
            base = rng.choice((n_committed + 1, (1 << 31) - 1))
        draft = self._draft(sequence, base, n)
        if self._happens(0.02):
            draft["sequence"] = rng.choice(("unknown", "\x00", "x" * 64))
        if self._happens(0.4):
            shape = rng.choice(
                (lambda i: i - 1, lambda _: -1, lambda i: rng.randint(-1, i - 1), lambda i: max(-1, i - 3))
            )
            draft["parents"] = [shape(i) for i in range(n)]
        if self._happens(0.7):
            draft["confidences"] = [rng.choice((0.0, 1.0, rng.random(), 5e-324)) for _ in range(n)]
        return draft

    def mixed(self, known: Mapping[str, int]) -> Frame:
        """Return a frame that in most cases is a draft that a lead accepts."""
        draft, kind = self.draft(known), self._rng.random()
        if kind < 0.96:  # noqa: PLR2004 - a share
            return written(draft)
        if kind < 0.97:  # noqa: PLR2004 - a share
            return self._last
        return written(draft | {"ignored": _LARGE}) if kind < 0.971 else self._mutator.broken(draft)  # noqa: PLR2004

    def sure(self, known: Mapping[str, int]) -> Frame:
        """Return a draft with the newest base and confidences of 1."""
        sequence, n_committed = self._sequence(known)
        return written(self._draft(sequence, n_committed, 16) | {"confidences": [1.0] * 16})

    def stale(self, known: Mapping[str, int]) -> Frame:
        """Return a draft whose base is not a committed position."""
        return written(self._draft(self._sequence(known)[0], 0, MAX_DRAFT_TOKENS))

    def duplicated(self, known: Mapping[str, int]) -> Frame:
        """Return a frame that in most cases is a copy of the previous frame."""
        return self._last if self._happens(0.8) and self._last != "{}" else self.sure(known)

    def oversized(self, known: Mapping[str, int]) -> Frame:
        """Return a frame of nearly the maximum size: a draft with an ignored field."""
        return written(self._draft(*self._sequence(known), 16) | {"ignored": _LARGE})

    def invalid(self, known: Mapping[str, int]) -> Frame:
        """Return a well-formed draft that exceeds a limit."""
        wrong = (
            {"base": (1 << 31) - 1},
            {"tokens": [(1 << 31) - 1]},
            {"sequence": "s" * 64},
            {"tokens": list(range(64)), "parents": [-1] * 64, "confidences": [0.0] * 64},
        )
        return written(self._draft(*self._sequence(known), 16) | self._rng.choice(wrong))

    def garbage(self, known: Mapping[str, int]) -> Frame:
        """Return a frame that is in most cases not a message."""
        garbage = (
            "[" * 5000,
            '{"type":"hello"}',
            "x" * (MAX_BACK_MESSAGE_BYTES + 1),
            "",
            self._rng.randbytes(2000),
        )
        return self._mutator.broken(self.draft(known)) if self._happens(0.3) else self._rng.choice(garbage)

    def _draft(self, sequence: str, base: int, n: int) -> Message:
        tokens = [self._token() for _ in range(n)]
        return {"type": "draft", "sequence": sequence, "base": base, "tokens": tokens}

    def _sequence(self, known: Mapping[str, int]) -> tuple[str, int]:
        """Return a sequence that the lead has opened and its length, or an invented one."""
        return self._rng.choice(list(known.items())) if known else ("f" * 32, 10)

    def _token(self) -> int:
        n_vocab = self._vocabulary.n_tokens
        return self._rng.choice((0, n_vocab - 1, self._rng.randrange(n_vocab)))

    def _happens(self, share: float) -> bool:
        return self._rng.random() < share


ATTACKS: Mapping[str, Callable[[HostileMessages, Mapping[str, int]], Frame]] = {
    "mixed": HostileMessages.mixed,
    "sure": HostileMessages.sure,
    "stale": HostileMessages.stale,
    "duplicated": HostileMessages.duplicated,
    "oversized": HostileMessages.oversized,
    "invalid": HostileMessages.invalid,
    "garbage": HostileMessages.garbage,
}


def identities(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield a name and an address for each connection, without end. A lead without keys distinguishes backs
    by names and addresses. On Linux all addresses that begin with 127 are this machine's.
    """
    while True:
        address = f"127.{rng.randint(1, 254)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}"
        identity = f"hostile-{rng.randrange(1 << 32)}", address
        yield identity
        while rng.random() < _SAME_AGAIN:
            yield identity


def n_frames_sent(log_text: str) -> Counter[str]:
    """Return the number of sent frames by attack, from this program's log."""
    sent: Counter[str] = Counter()
    for name, n in _SENT.findall(log_text):
        sent[name] += int(n)
    return sent


async def _attack(url: str, messages: HostileMessages, rng: random.Random) -> None:
    for name, address in identities(rng):
        with contextlib.suppress(OSError, WebSocketException, TimeoutError):
            async with (
                connect(
                    url,
                    max_size=MAX_LEAD_MESSAGE_BYTES,
                    proxy=None,
                    close_timeout=1.0,
                    local_addr=(address, 0),
                ) as connection,
                asyncio.timeout(_SECONDS_PER_ATTACK),
            ):
                await connection.send(messages.first_frame(name))
                await _stay(connection, messages, rng.choice(list(ATTACKS)))
        await asyncio.sleep(0.05)


async def _stay(connection: ClientConnection, messages: HostileMessages, attack: str) -> None:
    known, n_sent = KnownSequences(), 0

    async def listen() -> None:
        async for frame in connection:
            with contextlib.suppress(ProtocolError):
                known.follow(parse_lead_message(frame))

    listening = asyncio.ensure_future(listen())
    try:
        while not listening.done():
            await connection.send(messages.frame(known, attack))
            n_sent += 1
            await asyncio.sleep(1 / _FRAMES_PER_SECOND)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        log.info("%s: %d frames", attack, n_sent)


def main() -> None:
    """Attack the lead until this process is killed."""
    parser = argparse.ArgumentParser(prog="lab.campaign.hostile_back", description=__doc__)
    parser.add_argument("--lead", required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    configure_logging("info")
    vocabulary = Vocabulary.load(builtin_draft()).identify()
    rng = random.Random(options.seed)  # noqa: S311 - a seeded choice is wanted
    url = f"ws{options.lead.removeprefix('http')}/v1/speculation"
    asyncio.run(_attack(url, HostileMessages(rng, vocabulary), rng))


if __name__ == "__main__":
    main()
