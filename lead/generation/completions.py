"""Completions: from a prompt's tokens to the pieces of an answer, whoever asked and over whatever API."""

import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from lead.engine.commands import RequestOptions, Submit
from lead.engine.events import Committed, PromptProgress, Ready
from lead.generation.assembler import Assembler, TextToken
from lead.generation.figures import Figures, between
from lead.generation.record import RequestRecord, current
from lead.generation.sequences import Sequence as LiveSequence
from lead.generation.sequences import Sequences, Status
from shared.errors import QueueFullError, RequestError, UnavailableError
from shared.llama.vocabulary import Vocabulary
from shared.protocol import fits_into_open
from shared.sampling.sampler import SamplingParameters

log = logging.getLogger("lead")

StopReason = Literal["stop", "length"]

_NO_OPTIONS = RequestOptions()


class Engine(Protocol):
    """The seam to the engine (`lead.engine.client.EngineClient`)."""

    ready: Ready | None

    def submit(self, request: Submit) -> None:
        """Start a sequence; raises UnavailableError."""

    def cancel(self, sequence_id: str) -> None:
        """Stop a sequence within a step."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the prompt has come, so many seconds after the sequence got its slot."""

    n_processed: int
    n_total: int
    n_cached: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that has become certain, and the speculation figures of the steps it came from."""

    tokens: list[TextToken]
    n_drafted: int
    n_accepted: int
    progress: Progress | None = None
    so_far: Figures | None = None  # where asked for

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an answer ended."""

    reason: StopReason
    seed: int
    slot: int | None
    stop_string: str | None  # the one that ended the text
    figures: Figures


class Completions:
    """Starts sequences and follows them."""

    def __init__(
        self,
        sequences: Sequences,
        engine: Engine,
        vocabulary: Vocabulary,
        *,
        private_by_default: bool = False,
        max_queue: int | None = None,
        log_prompts: bool = False,
    ) -> None:
        """`max_queue` sequences at most wait for a slot; None: any number."""
        self._log_prompts = log_prompts
        self._sequences = sequences
        self._private_by_default = private_by_default
        self._max_queue = max_queue
        self._engine = engine
        self._vocabulary = vocabulary

    @property
    def n_ctx(self) -> int:
        """The most tokens one sequence can have; raises UnavailableError while that is not known."""
        if self._engine.ready is None:
            raise UnavailableError("the model is being loaded: try again in a moment")
        return self._engine.ready.n_ctx_sequence

    def start(
        self,
        prompt: list[int],
        sampling: SamplingParameters,
        max_tokens: int | None,
        prediction: Sequence[int] = (),
        *,
        private: bool | None = None,
        options: RequestOptions = _NO_OPTIONS,
    ) -> LiveSequence:
        """Begin to continue `prompt`; raises RequestError, UnavailableError, QueueFullError.

        `prediction` is what the client thinks will follow: it can make the answer faster, never another one.
        No back hears of a `private` sequence (None: as the lead is set up), nor of one whose parameters are
        too large for the protocol.
        """
        self._check_prompt(prompt)
        self._check_queue()
        if self._log_prompts:
            log.info("prompt: %r", self._vocabulary.detokenize(prompt))
        if sampling.grammar is not None:
            sampling = sampling.model_copy(update={"grammar_start": len(prompt)})
        private = self._private_by_default if private is None else private
        private = private or not fits_into_open(sampling)
        sequence = self._sequences.create(prompt, sampling, private=private)
        sequence.max_tokens = max_tokens
        try:
            self._engine.submit(
                Submit(
                    sequence=sequence.id,
                    tokens=prompt,
                    sampling=sampling,
                    max_tokens=max_tokens,
                    prediction=list(prediction),
                    options=options,
                )
            )
        except UnavailableError:
            self._sequences.discard(sequence)
            raise
        return sequence

    async def follow(
        self,
        sequence: LiveSequence,
        stops: Sequence[str],
        shown: frozenset[int] = frozenset(),
        *,
        max_seconds: float | None = None,
        tells_timings: bool = False,
    ) -> AsyncGenerator[Piece | Outcome]:
        """The answer's pieces as they come, then its outcome; raises UnavailableError if the engine dies.

        `shown` are control tokens whose text counts. `max_seconds` after its first token the text ends, if it
        has a line break by then (llama-server's `t_max_predict_ms`). Closing the iterator early cancels the
        sequence.
        """

        def piece(token: int) -> bytes:
            return self._vocabulary.piece(token, special=token in shown)

        assembler = Assembler(piece if shown else self._vocabulary.piece, stops)
        n_seen = n_told = 0
        late = False
        record = current.get()
        try:
            while assembler.stop is None and not late:
                change = sequence.changed.next_change()
                steps = sequence.steps[n_seen:]
                n_seen += len(steps)
                for event, at in sequence.progress[n_told:]:
                    n_told += 1
                    yield Piece([], 0, 0, _progress(sequence, event, at))
                tokens = [token for step in steps for token in assembler.push(step)]
                if steps:
                    so_far = Figures.of(sequence, assembler.n_tokens) if tells_timings else None
                    n_drafted, n_accepted = _draft_figures(steps)
                    yield Piece(tokens, n_drafted, n_accepted, so_far=so_far)
                    late = assembler.has_new_line and _has_run_for(sequence, max_seconds)
                elif sequence.ended:
                    break
                else:
                    await change.wait()
            if sequence.status is Status.FAILED:
                raise sequence.failure or UnavailableError("the engine has died")
            if rest := assembler.finish():
                yield Piece(rest, 0, 0)
            reason = sequence.finish_reason or ("length" if late else "stop")
            if assembler.stop is not None:
                reason = "stop"
            figures = Figures.of(sequence, assembler.n_tokens)
            yield Outcome(reason, sequence.sampling.seed, sequence.slot, assembler.stop, figures)
        finally:
            self.cancel(sequence)
            if record:
                _count(sequence, record)

    def cancel(self, sequence: LiveSequence) -> None:
        """Nobody wants the rest; does nothing if there is none."""
        if not sequence.ended:
            self._sequences.discard(sequence)
            self._engine.cancel(sequence.id)

    def _check_queue(self) -> None:
        """Count all that have not ended, running or not: one just submitted is as good as in its slot."""
        assert self._engine.ready
        n_waiting = len(self._sequences) - self._engine.ready.n_slots
        if self._max_queue is not None and n_waiting >= self._max_queue:
            raise QueueFullError(
                f"all slots are taken and {max(n_waiting, 0)} more requests wait: try again in a moment"
            )

    def _check_prompt(self, prompt: list[int]) -> None:
        if not prompt:
            raise RequestError("the prompt is empty", "prompt")
        n_ctx = self.n_ctx
        if len(prompt) >= n_ctx:
            raise ContextExceededError(len(prompt), n_ctx)


class ContextExceededError(RequestError):
    """The prompt leaves no room for an answer."""

    def __init__(self, n_prompt: int, n_ctx: int) -> None:
        super().__init__(
            f"the request ({n_prompt} tokens) exceeds the available context size ({n_ctx} tokens)",
            "prompt",
            "context_length_exceeded",
        )
        self.n_prompt = n_prompt
        self.n_ctx = n_ctx


def random_seed() -> int:
    """For requests without one: small enough for any client's integers."""
    return secrets.randbits(32)


def _draft_figures(steps: Sequence[Committed]) -> tuple[int, int]:
    return sum(step.n_drafted for step in steps), sum(step.n_accepted for step in steps)


def _progress(sequence: LiveSequence, event: PromptProgress, at: float) -> Progress:
    seconds = between(sequence.started_at, at) if event.n_processed > event.n_cached else 0.0
    return Progress(event.n_processed, event.n_total, event.n_cached, seconds)


def _has_run_for(sequence: LiveSequence, seconds: float | None) -> bool:
    return seconds is not None and between(sequence.first_token_at, sequence.last_token_at) >= seconds


def _count(sequence: LiveSequence, record: RequestRecord) -> None:
    record.n_sequences += 1
    record.n_prompt += sequence.n_prompt
    record.n_cached += sequence.n_cached
    record.n_generated += len(sequence.tokens) - sequence.n_prompt
    record.n_drafted += sequence.n_drafted
    record.n_accepted += sequence.n_accepted
