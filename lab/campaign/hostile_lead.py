"""A hostile lead: sends valid and invalid messages to any back that connects."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from lab.campaign.hostile_json import Message, Mutator, written
from shared.errors import ProtocolError
from shared.protocol import Close, Extend, Tune, Welcome, parse_back_message
from shared.sampling.parameters import MAX_TEXT_TOKENS, SamplingParameters

_PAUSE_SECONDS = 0.002
_N_VOCAB = 4096
"""The vocabulary size of the models that this project ships."""
_N_TEXTS, _MAX_TOKENS = 6, 3000
_BROKEN = 0.03
"""The share of broken frames: most of them end the connection."""
_SAMPLINGS: tuple[Message, ...] = (
    {},
    {"temperature": 1e6, "top_k": 0, "top_p": 1, "min_p": 0},
    {"repeat_penalty": 1.3, "repeat_last_n": MAX_TEXT_TOKENS, "frequency_penalty": 1e6},
    {"dry_multiplier": 1e6, "dry_base": 1e6, "dry_sequence_breakers": ["\x00", "a"]},
    {"logit_bias": {"0": 1e9, "4095": -1e9, "99999999999": 1}, "ignore_eos": True},
    {"min_p": 1, "top_p": 0, "typical_p": 0, "top_k": 1},
    *({"grammar": grammar} for grammar in ("start: start", 'start: "', "\x00", 'start: "a" ' * 200)),
)


class HostileLead:
    """A hostile server for backs. wrong: the frames from backs that were not valid messages."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._mutator = Mutator(rng)
        self.wrong: list[str] = []
        self.n_connections = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Start the server and yield its URL; it stops with the context."""
        async with serve(self._attack, "127.0.0.1", 0, max_size=None, ping_interval=None) as server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _attack(self, connection: ServerConnection) -> None:
        """Attack over one connection until the back ends it."""
        self.n_connections += 1
        reading, texts = asyncio.ensure_future(self._read(connection)), dict[str, int]()
        with contextlib.suppress(ConnectionClosed):
            welcome = Welcome(back="id", name="b\x1b[2J", max_draft=64, max_drafts_per_second=1e308)
            await connection.send(self._frame(welcome.model_dump()))
            while True:
                await connection.send(self._frame(self.message(texts)))
                await asyncio.sleep(_PAUSE_SECONDS)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for frame in connection:
                try:
                    parse_back_message(frame)
                except ProtocolError as error:
                    self.wrong.append(f"invalid message of a back: {error}")

    def _frame(self, message: Message) -> str | bytes:
        return self._mutator.broken(message) if self._rng.random() < _BROKEN else written(message)

    def message(self, texts: dict[str, int]) -> Message:
        """Return a well-formed message. `texts`: the number of committed tokens by sequence."""
        kind, rng = self._rng.random(), self._rng
        if not texts or (kind < 0.1 and len(texts) < _N_TEXTS):  # noqa: PLR2004 - a share
            return self._open(texts)
        if kind < 0.14:  # noqa: PLR2004 - a share
            return Tune(n_ahead=rng.choice((0, 1, 64)), min_confidence=rng.random()).model_dump()
        sequence = rng.choice(list(texts))
        if kind < 0.16 or texts[sequence] > _MAX_TOKENS:  # noqa: PLR2004 - a share
            del texts[sequence]
            return Close(sequence=sequence, reason="ended").model_dump()
        start = texts[sequence]
        if kind < 0.26:  # noqa: PLR2004 - a share
            start = max(0, start - rng.choice((1, 5, start)))
        elif kind < 0.265:  # noqa: PLR2004 - a share
            start = (1 << 31) - 1
        tokens = self._tokens(rng.choice((0, 1, 1, 1, 2, 3, 5, 100)))
        if start <= texts[sequence]:
            texts[sequence] = max(texts[sequence], start + len(tokens))
        return Extend(sequence=sequence, start=start, tokens=tokens).model_dump()

    def _open(self, texts: dict[str, int]) -> Message:
        sequence = self._rng.choice(("a", "\x1b[2J", "x" * 64, str(self._rng.randrange(1000))))
        tokens = self._tokens(self._rng.choice((0, 1, 5, 200, 2000)))
        texts.setdefault(sequence, len(tokens))
        sampling = SamplingParameters(seed=self._rng.randrange(1 << 63), temperature=0).model_dump(
            mode="json"
        )
        if self._rng.random() < 0.2:  # noqa: PLR2004 - some
            sampling |= self._rng.choice(_SAMPLINGS)
        return {"type": "open", "sequence": sequence, "sampling": sampling, "tokens": tokens}

    def _tokens(self, n: int) -> list[Any]:
        if self._rng.random() < 0.002:  # noqa: PLR2004 - few: ids beyond the vocabulary
            return [self._rng.choice((_N_VOCAB, (1 << 31) - 1))] * n
        return [self._rng.randrange(_N_VOCAB) for _ in range(n)]
