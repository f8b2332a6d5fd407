"""A back that does not help: it proposes random tokens, or drafts far too slowly.

    python -m bench.adversarial_back --lead http://127.0.0.1:5555 --kind random

`random` answers each message about a sequence at once with random tokens. Unless the lead waits for them
they are stale before it looks, because their first token is wrong; so `liar` drafts honestly and replaces all
but the first tokens. `slow` drafts honestly and sleeps before each step. All use the real protocol and link.
"""

import argparse
import asyncio
import functools
import logging
import random
import signal
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from back.link import LeadListener, Link
from back.worker import Worker
from bench import back_program
from bench.until_signal import until_signal
from shared.cache_edits import SlotMemory
from shared.drafting.drafter import Drafter
from shared.drafting.drafter_options import DrafterOptions
from shared.drafting.drafting_sampler import drafting_sampler
from shared.drafting.interfaces import DraftModel
from shared.drafting.send_scheduler import SendScheduler
from shared.llama.model import Model
from shared.llama.span import Span
from shared.protocol import Close, Draft, Extend, Open, Tune
from shared.sampling.remote_grammar import GrammarServer, Patience
from shared.settings.model_options import ModelOptions

log = logging.getLogger("bench.adversarial_back")

_N_AHEAD = 16
_N_HONEST = 2
_CONFIDENCE = 0.95
"""As high as a good back's: a lead must not trust confidences blindly."""


class RandomDrafter:
    """Posts `n_tokens` random tokens after every message about a sequence."""

    n_unread = 0  # it answers at once

    def __init__(
        self, n_vocab: int, post: Callable[[Draft], None], rng: random.Random, n_tokens: int = _N_AHEAD
    ) -> None:
        self._n_vocab = n_vocab
        self._post = post
        self._rng = rng
        self._n_tokens = n_tokens
        self._n_committed: dict[str, int] = {}

    def on_message(self, message: Open | Extend | Close | Tune) -> None:
        """Answer a message of the lead."""
        match message:
            case Open():
                self._answer(message.sequence, len(message.tokens))
            case Extend() if message.sequence in self._n_committed:
                self._answer(message.sequence, message.start + len(message.tokens))
            case Close():
                self._n_committed.pop(message.sequence, None)

    def on_disconnect(self) -> None:
        """Forget all sequences."""
        self._n_committed.clear()

    def _answer(self, sequence: str, n_committed: int) -> None:
        self._n_committed[sequence] = n_committed
        tokens = [self._rng.randrange(self._n_vocab) for _ in range(self._n_tokens)]
        confidences = [_CONFIDENCE] * self._n_tokens
        self._post(Draft(sequence=sequence, base=n_committed, tokens=tokens, confidences=confidences))


def garbled(draft: Draft, n_honest: int, n_vocab: int, rng: random.Random) -> Draft:
    """The first `n_honest` tokens of `draft`, followed by random ones."""
    honest = draft.tokens[:n_honest]
    random_ones = [rng.randrange(n_vocab) for _ in range(_N_AHEAD - len(honest))]
    tokens = [*honest, *random_ones]
    return Draft(
        sequence=draft.sequence, base=draft.base, tokens=tokens, confidences=[_CONFIDENCE] * len(tokens)
    )


class SlowModel(SlotMemory):
    """A draft model whose steps take `seconds` longer."""

    def __init__(self, model: DraftModel, seconds: float, sleep: Callable[[float], None]) -> None:
        self._model = model
        self._seconds = seconds
        self._sleep = sleep
        self.n_batch = model.n_batch
        self.n_vocab = model.n_vocab
        self.traits = model.traits

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        """One forward pass, delayed."""
        self._sleep(self._seconds)
        return self._model.decode(spans)

    def trim(self, slot: int, n_keep: int) -> None:
        """Keep the first `n_keep` tokens of a slot in the cache."""
        self._model.trim(slot, n_keep)

    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        """Share the first `n_keep` tokens of `source_slot` with `slot`."""
        self._model.copy(source_slot, slot, n_keep)


def main() -> None:
    """Draft badly until a signal."""
    parser = back_program.parser("bench.adversarial_back", __doc__)
    parser.add_argument("--name", default="bad")
    parser.add_argument("--kind", choices=("random", "liar", "slow"), default="random")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="slow: how much longer each step takes")
    arguments = back_program.parse(parser)
    asyncio.run(_run(arguments, Model(arguments.model, ModelOptions(threads=1))))


async def _run(arguments: argparse.Namespace, model: Model) -> None:
    hello = back_program.hello(arguments.name, model.vocabulary, n_ctx=model.n_ctx, n_sequences=model.n_slots)
    rng = random.Random(arguments.seed)  # noqa: S311 - a seeded choice is wanted
    link = Link(back_program.url(arguments.lead), hello, rng)
    listener: LeadListener = RandomDrafter(model.n_vocab, link.outbox.post, rng)
    if arguments.kind != "random":

        def on_draft(draft: Draft) -> None:
            if arguments.kind == "liar":
                draft = garbled(draft, _N_HONEST, model.n_vocab, rng)
            link.outbox.post(draft)

        drafter = _drafter(model, arguments.delay_ms / 1000)
        worker = Worker(drafter, SendScheduler(0.0, 0.0), [on_draft], _give_up)

        worker.start()
        listener = worker.inbox_of(0)
    await until_signal(link.run(listener))


def _give_up(error: Exception) -> None:
    """In the drafting thread; the process ends as on a signal."""
    log.error("drafting failed: %s", error)
    signal.raise_signal(signal.SIGTERM)


def _drafter(model: Model, seconds: float) -> Drafter:
    vocabulary = model.vocabulary
    patience = Patience()
    grammars = GrammarServer(vocabulary.info.path, patience)
    options = DrafterOptions(model.n_slots, model.n_ctx // model.n_slots, _N_AHEAD)
    return Drafter(
        SlowModel(model, seconds, time.sleep),
        options,
        functools.partial(drafting_sampler, vocabulary, grammars),
        vocabulary.end_tokens,
        patience,
    )


if __name__ == "__main__":
    main()
