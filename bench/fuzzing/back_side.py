"""A hostile lead against a back's own code, in this process: link, worker, drafter, samplers, cache.

The lead is a real WebSocket server. Unless the model is a real one, a stand-in returns prepared logits.
"""

import asyncio
import contextlib
import functools
import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from back import dial
from back.dial import RefusedError
from back.link import LeadLink
from back.worker import DraftWorker
from bench.fuzzing.mutations import Message, Mutator
from bench.fuzzing.tally import Tally
from bench.replay import Rows
from shared.cache_edits import SlotMemory
from shared.drafting.drafter import Drafter, DrafterMessage
from shared.drafting.drafter_options import DrafterOptions
from shared.drafting.interfaces import DraftModel
from shared.errors import ProtocolError
from shared.llama.memory_traits import PLAIN
from shared.llama.model import Model
from shared.llama.span import Span
from shared.llama.vocabulary import Vocabulary
from shared.memory.plan_memory import plan_memory
from shared.models.builtin import builtin_draft
from shared.protocol import (
    PROTOCOL_VERSION,
    BranchPart,
    Close,
    Draft,
    Extend,
    Hello,
    Refused,
    Tune,
    Welcome,
    parse_back_message,
)
from shared.sampling.factory import drafting_sampler
from shared.sampling.grammar import prepare
from shared.sampling.parameters import MAX_TEXT_TOKENS, SamplingParameters
from shared.sampling.remote_grammar import GrammarServer, TimeBudget
from shared.settings.model_options import ModelOptions

_N_SLOTS, _N_BATCH, _N_CELLS = 2, 64, 2048
_N_BRANCHES = 1
_MAX_KNOWN = 6
_MAX_COMMITTED = 3000
_MAX_AHEAD = 64
"""Messages on their way: what follows a broken one is not read."""
_IDLE_SECONDS = 0.01
_CLOSE_SECONDS = 0.01
"""Connections end thousands of times, while there are messages that the back has not read."""
_GRAMMARS = ('start: "a"+', "start: /[a-z]*/", "start: start", 'start: "', "\x00", 'start: "a" ' * 200)
_SAMPLINGS: tuple[Message, ...] = (
    {"temperature": 0},
    {},
    {"temperature": 1e6, "top_k": 0, "top_p": 1, "min_p": 0},
    {"repeat_penalty": 1.3, "repeat_last_n": MAX_TEXT_TOKENS, "frequency_penalty": 1e6},
    {"dry_multiplier": 1e6, "dry_base": 1e6, "dry_sequence_breakers": ["\x00", "a"]},
    {"xtc_probability": 1, "xtc_threshold": 0, "top_n_sigma": 0.1, "dynatemp_range": 1e6},
    {"logit_bias": {"0": 1e9, "4095": -1e9, "99999999999": 1}, "ignore_eos": True},
    {"samplers": []},
    {"min_p": 1, "top_p": 0, "typical_p": 0, "top_k": 1},
)


class _Model(SlotMemory):
    """Prepared logits in the place of a draft model; keeps records of its cache, as a real one does."""

    def __init__(self, n_vocab: int, n_slots: int) -> None:
        self.n_vocab, self.n_batch = n_vocab, _N_BATCH
        self.traits = PLAIN
        self._rows = Rows(n_vocab, seed=1)
        self._n_held = [0] * n_slots

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        """Logits for each span."""
        logits: list[NDArray[np.float32]] = []
        for span in spans:
            assert span.start == self._n_held[span.slot], f"slot {span.slot} holds {self._n_held[span.slot]}"
            assert all(0 <= token < self.n_vocab for token in span.tokens)
            self._n_held[span.slot] += len(span.tokens)
            row = self._rows.at(self._n_held[span.slot])
            logits.append(np.tile(row, (span.n_logits, 1)))
        return logits

    def trim(self, slot: int, n_keep: int) -> None:
        """Keep the first `n_keep` tokens."""
        assert n_keep < self._n_held[slot]
        self._n_held[slot] = n_keep

    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        """Share a prefix with an empty slot."""
        assert self._n_held[slot] == 0
        assert n_keep <= self._n_held[source_slot]
        self._n_held[slot] = n_keep


class _CountingWorker(DraftWorker):
    """Counts the messages that the link hands over."""

    n_heard = 0

    def on_message(self, lead: int, message: DrafterMessage | None) -> None:
        self.n_heard += message is not None
        super().on_message(lead, message)


class _NoDelays(random.Random):
    """Attempts to connect follow each other at once."""

    def uniform(self, a: float, b: float) -> float:
        del a, b
        return 0.0


class BackFuzzer:
    """A back, and a lead that sends it anything."""

    def __init__(self, rng: random.Random, tally: Tally, *, is_real: bool) -> None:
        self._rng = rng
        self._tally = tally
        self._mutator = Mutator(rng)
        vocabulary = Vocabulary.load(builtin_draft())
        prepare(vocabulary)
        self._n_vocab = vocabulary.n_tokens
        self._hello = Hello(
            protocol=PROTOCOL_VERSION,
            name="b",
            vocabulary=vocabulary.identify(),
            n_ctx=0,
            n_sequences=_N_SLOTS,
        )
        options = DrafterOptions.for_cache(
            _N_CELLS, n_slots=_N_SLOTS, n_train=vocabulary.info.n_ctx_train, n_ahead=4, n_branches=_N_BRANCHES
        )
        model: DraftModel = _Model(self._n_vocab, options.n_model_slots)
        interrupt = None
        if is_real:
            load = ModelOptions(
                threads=1, ctx_size=_N_CELLS, parallel=options.n_model_slots, batch_size=_N_BATCH
            )
            model = Model(plan_memory(builtin_draft(), load))
            interrupt = model.interrupt()
        budget = TimeBudget()
        grammars = GrammarServer(vocabulary.info.path, budget)
        sampler_for = functools.partial(drafting_sampler, vocabulary, grammars)
        self._drafter = Drafter(
            model, options, sampler_for, vocabulary.end_tokens, budget, interrupt=interrupt
        )
        self._texts: dict[str, int] = {}
        self._n = 0
        self._done = asyncio.Event()

    async def run(self, n: int) -> None:
        """Send messages until `n` were read."""
        self._n = n
        dial.CLOSE_SECONDS = _CLOSE_SECONDS
        failures: list[Exception] = []
        async with serve(self._attack, "127.0.0.1", 0, max_size=None, ping_interval=None) as server:
            port = server.sockets[0].getsockname()[1]
            link = LeadLink(f"ws://127.0.0.1:{port}/v1/speculation", self._hello, _NoDelays())
            self._worker = worker = _CountingWorker(self._drafter, [link.outbox.post], failures.append)
            worker.start()
            following = asyncio.ensure_future(self._follow(link, worker))
            while not self._done.is_set() and not failures:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._done.wait(), 1.0)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            while worker.n_unread and not failures:  # noqa: ASYNC110 - the worker is a thread
                await asyncio.sleep(_IDLE_SECONDS)
        self._tally.note(n)
        for failure in failures:
            self._tally.counts[f"CRASH {type(failure).__name__}: {failure}"[:200]] += 1
        self._tally.counts["messages"] += self._n_read

    @property
    def _n_read(self) -> int:
        """Those that the link has handed over, and one for each connection: its last, which was broken."""
        return self._worker.n_heard + self._tally.counts["connections"]

    async def _follow(self, link: LeadLink, worker: DraftWorker) -> None:
        """Run the link, again after a refusal, which is final for a real back."""
        while True:
            try:
                await link.run(worker)
            except RefusedError:
                self._tally.counts["refusals"] += 1
            except Exception as error:  # noqa: BLE001 - that is what is looked for
                self._tally.counts[f"CRASH {type(error).__name__}: {error}"[:200]] += 1

    # The lead

    async def _attack(self, connection: ServerConnection) -> None:
        """One connection, until the back ends it."""
        self._texts.clear()
        self._tally.counts["connections"] += 1
        reading = asyncio.ensure_future(self._read(connection))
        with contextlib.suppress(ConnectionClosed):
            await connection.send(self._first_frame())
            n_before, n_sent = self._worker.n_heard, 0
            while self._n_read < self._n:
                if n_sent - (self._worker.n_heard - n_before) > _MAX_AHEAD:
                    await asyncio.sleep(0)
                    if connection.state is not State.OPEN:
                        break
                    continue
                await connection.send(self._frame())
                n_sent += 1
                self._tally.note(self._n_read)
            else:
                self._done.set()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, connection: ServerConnection) -> None:
        """What a back sends has to be valid, whatever it was told."""
        with contextlib.suppress(ConnectionClosed):
            async for frame in connection:
                try:
                    message = parse_back_message(frame)
                except ProtocolError as error:
                    self._tally.counts[f"CRASH invalid message of the back: {error}"] += 1
                    continue
                self._tally.counts["drafts"] += isinstance(message, Draft)

    def _first_frame(self) -> str | bytes:
        rate = self._rng.choice((1e-300, 1.0, 2000.0, 1e308))
        welcome = Welcome(
            back="id",
            name="b\x1b[2J",
            max_draft=self._rng.choice((1, 64, 1 << 60)),
            max_drafts_per_second=rate,
        )
        kind = self._rng.random()
        if kind < 0.9:  # noqa: PLR2004 - a share
            return welcome.model_dump_json()
        if kind < 0.91:  # noqa: PLR2004 - a share
            return Refused(reason="\x1b[2J" * 1000).model_dump_json()
        return self._mutator.broken(welcome.model_dump())

    def _frame(self) -> str | bytes:
        kind = self._rng.random()
        if kind < 0.1 and len(self._texts) < _MAX_KNOWN:  # noqa: PLR2004 - a share
            message = self._open()
        elif kind < 0.12:  # noqa: PLR2004 - a share
            message = self._close()
        elif kind < 0.14:  # noqa: PLR2004 - a share
            message = Tune(
                n_ahead=self._rng.choice((0, 1, 64)), min_confidence=self._rng.random()
            ).model_dump()
        else:
            message = self._extend()
        if self._rng.random() < 0.03:  # noqa: PLR2004 - a share; most of them end the connection
            return self._mutator.broken(message)
        return json.dumps(message, separators=(",", ":"))

    def _open(self) -> Message:
        sequence = self._rng.choice(("a", "b", "\x1b[2J", "x" * 64, str(self._rng.randrange(1000))))
        tokens = self._tokens(self._rng.choice((0, 1, 5, 200, 2000)))
        self._texts.setdefault(sequence, len(tokens))
        sampling = SamplingParameters(seed=self._rng.randrange(1 << 63)).model_dump(mode="json")
        unusual = self._rng.random()
        sampling |= self._rng.choice(_SAMPLINGS) if unusual < 0.05 else _SAMPLINGS[0]  # noqa: PLR2004 - a share
        if unusual < 0.002:  # noqa: PLR2004 - a share
            sampling["grammar"] = self._rng.choice(_GRAMMARS)
        return {"type": "open", "sequence": sequence, "sampling": sampling, "tokens": tokens}

    def _extend(self) -> Message:
        known = list(self._texts) or ["unknown"]
        sequence = self._rng.choice(known)
        n_committed = self._texts.get(sequence, 0)
        start = n_committed
        if self._rng.random() < 0.1:  # noqa: PLR2004 - a share
            start = max(0, n_committed - self._rng.choice((1, 5, n_committed)))
        elif self._rng.random() < 0.005:  # noqa: PLR2004 - a share
            start = self._rng.choice((n_committed + 1, (1 << 31) - 1))
        tokens = self._tokens(self._rng.choice((0, 1, 1, 1, 2, 3, 5, 100)))
        if sequence in self._texts and start <= n_committed:
            self._texts[sequence] = max(n_committed, start + len(tokens))
        if n_committed > _MAX_COMMITTED:
            return self._close(sequence)
        part = BranchPart(index=self._rng.randrange(3), of=self._rng.randint(1, 3))
        return Extend(sequence=sequence, start=start, tokens=tokens, part=part).model_dump()

    def _close(self, sequence: str | None = None) -> Message:
        sequence = sequence or self._rng.choice([*self._texts, "unknown"])
        self._texts.pop(sequence, None)
        return Close(sequence=sequence, reason="ended").model_dump()

    def _tokens(self, n: int) -> list[Any]:
        if self._rng.random() < 0.002:  # noqa: PLR2004 - a share: ids beyond the vocabulary
            return [self._rng.choice((self._n_vocab, (1 << 31) - 1))] * n
        return [self._rng.randrange(self._n_vocab) for _ in range(n)]
