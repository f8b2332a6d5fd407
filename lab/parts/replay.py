"""Stand-ins for model, front process and drafts around the real engine; their own time is subtracted.

Between them everything is real: loop, engine, speculation, sampler, and the engine's end of the pipe.
"""

import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lead.engine.commands import Command
from lead.engine.events import Committed, Event, encode_line
from lead.engine.pipe import EnginePipe
from lead.engine.target import Target
from shared.llama.span import Span
from shared.protocol import Draft
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Filters, Sampler

SEQUENCE = "s"
_N_ROWS = 64
_N_POSITIONS = 1 << 14
_N_LIKELY = 200
_N_AHEAD = 8


@dataclass(slots=True)
class Shares:
    """Seconds of a step spent in the sampler, in the engine's end of the pipe, and outside the engine."""

    sampling: float = 0.0
    pipe: float = 0.0
    outside: float = 0.0


class Rows:
    """Logits by position, peaked like a real model's: some tokens have probabilities that follow Zipf's law.

    The exponent, and so the certainty, varies with the position: with min-p 0.05, every second position has
    one token left. All other tokens are far below. A few rows serve all positions, in a sequence that
    does not repeat.
    """

    def __init__(self, n_vocab: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._rows = rng.normal(scale=2.5, size=(_N_ROWS, n_vocab)).astype(np.float32)
        self._order = rng.integers(_N_ROWS, size=_N_POSITIONS)
        ranks = np.log(np.arange(1, _N_LIKELY + 1))
        for row in self._rows:
            likely = rng.choice(n_vocab, _N_LIKELY, replace=False)
            row[likely] = 20 - rng.uniform(0.8, 8) * ranks

    def at(self, position: int) -> NDArray[np.float32]:
        """Return the logits for the token at `position`, shape (n_vocab,)."""
        row: NDArray[np.float32] = self._rows[self._order[position % len(self._order)]]
        return row


class TimedSampler(Sampler):
    """The engine's sampler, timed."""

    def __init__(
        self, parameters: SamplingParameters, filters: Filters | None, history: Sequence[int], shares: Shares
    ) -> None:
        super().__init__(parameters, filters, history)
        self._shares = shares

    def choose(self, logits: NDArray[np.float32], position: int) -> int:
        started = time.perf_counter()
        token = super().choose(logits, position)
        self._shares.sampling += time.perf_counter() - started
        return token

    def accept(self, token: int) -> None:
        started = time.perf_counter()
        super().accept(token)
        self._shares.sampling += time.perf_counter() - started


class ReplayTarget(Target):
    """A target that copies prepared logits to the buffer that the engine reads, as llama.cpp does at the end
    of a decode.
    """

    def __init__(self, rows: Rows, n_vocab: int, n_batch: int, shares: Shares) -> None:
        self._rows = rows
        self._table = np.empty((n_batch, n_vocab), np.float32)
        self._shares = shares

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        """Return logits for each span, shape (n_logits, n_vocab); valid until the next call."""
        started = time.perf_counter()
        result, at = [], 0
        for span in spans:
            end = span.start + len(span.tokens)
            for position in range(end - span.n_logits + 1, end + 1):
                self._table[at] = self._rows.at(position)
                at += 1
            result.append(self._table[at - span.n_logits : at])
        self._shares.outside += time.perf_counter() - started
        return result

    def trim(self, slot: int, n_keep: int) -> None:
        """Do nothing: there is no cache."""

    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        """Do nothing: there is no cache."""


class ReplayFront:
    """The engine's real pipe, with a front at its other end that posts a draft after every step.

    accuracy: the share of right draft tokens; None: there are no drafts.
    """

    def __init__(self, truth: Sequence[int], accuracy: float | None, shares: Shares) -> None:
        ours, theirs = socket.socketpair()
        self._engine, self._front = ours, theirs
        self._pipe = EnginePipe(ours)
        self._truth, self._accuracy, self._shares = truth, accuracy, shares
        self._rng = random.Random(0)  # noqa: S311 - the same drafts each time are wanted
        self.open = True
        self.n_committed = 0
        self._n_answered = 0

    def command(self, command: Command) -> None:
        """Send a command to the engine."""
        self._front.sendall(encode_line(command))

    def drain(self, wait: float | None) -> list[Command]:
        """Return the commands that the engine has not read yet."""
        started = time.perf_counter()
        if self._accuracy is not None and self.n_committed > self._n_answered:
            self._n_answered = self.n_committed
            self.command(self._draft(self._accuracy))
        asked = time.perf_counter()
        commands = self._pipe.drain(wait)
        self._shares.outside += asked - started
        self._shares.pipe += time.perf_counter() - asked
        return commands

    def send(self, *events: Event) -> None:
        """Pass on the engine's events."""
        started = time.perf_counter()
        self._pipe.send(*events)
        sent = time.perf_counter()
        self._front.recv(1 << 16)
        for event in events:
            if isinstance(event, Committed):
                self.n_committed = event.start + len(event.tokens)
        self._shares.pipe += sent - started
        self._shares.outside += time.perf_counter() - sent

    def close(self) -> None:
        """Close both ends of the pipe."""
        self._engine.close()
        self._front.close()

    def _draft(self, accuracy: float) -> Draft:
        base = self.n_committed
        right = self._truth[base : base + _N_AHEAD]
        tokens = [token if self._rng.random() < accuracy else token ^ 1 for token in right]
        return Draft(sequence=SEQUENCE, source="back", base=base, tokens=tokens)
