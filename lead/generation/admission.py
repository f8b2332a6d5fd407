"""Admission: a prompt is checked and becomes a sequence of the engine's, or is refused."""

from collections.abc import Sequence

from lead.engine.client import EngineClient
from lead.engine.commands import Submit
from lead.engine.context_shift import ContextShift
from lead.generation.front_vocabulary import FrontVocabulary
from lead.generation.sequences import Broadcast, LiveSequence, Sequences
from shared.errors import NotServingError, QueueFullError, RequestError, UnavailableError
from shared.protocol import fits_into_open

_LEAST_SHIFTED = 4
"""The least tokens of the context that are not kept: at each shift half of them go (as in llama-server)."""


class Admission:
    def __init__(
        self,
        sequences: Sequences,
        engine: EngineClient,
        vocabulary: FrontVocabulary,
        *,
        private_by_default: bool = False,
        max_queue: int | None = None,
        context_shift: bool = False,
    ) -> None:
        """At most `max_queue` sequences wait for a slot; None: any number."""
        self.shifts = context_shift
        """Whether sequences go on when their context is full."""
        self._sequences = sequences
        self._private_by_default = private_by_default
        self._max_queue = max_queue
        self._engine = engine
        self._vocabulary = vocabulary

    @property
    def n_ctx(self) -> int:
        """The size of one sequence's context, in tokens; raises NotServingError while that is not known."""
        if self._engine.ready is None:
            raise NotServingError("the model is being loaded: try again in a moment")
        return self._engine.ready.n_ctx_sequence

    def submit(
        self, request: Submit, *, private: bool | None = None, changed: Broadcast | None = None
    ) -> LiveSequence:
        """Begin to continue a prompt; raises RequestError, UnavailableError, QueueFullError.

        A `private` sequence (None: the lead's default) is not shown to backs, not logged and not remembered
        for drafts of later ones. Backs do not see one whose parameters exceed the protocol's message size
        either. `request.n_keep` is as the client wrote it: see `context_shift`. `changed` is notified of each
        of its changes.
        """
        prompt, sampling = request.tokens, request.sampling
        self.check_prompt(prompt)
        self._check_queue()
        shift = self.context_shift(request)
        update: dict[str, object] = {"n_keep": shift.n_keep if shift else None}
        if sampling.grammar is not None:
            sampling = update["sampling"] = sampling.model_copy(update={"grammar_start": len(prompt)})
        if self._private_by_default if private is None else private:
            private, update["owner"], update["keep_for"] = True, None, None
        else:
            private = not fits_into_open(sampling)
        request = request.model_copy(update=update)
        sequence = self._sequences.create(request, private=private, changed=changed)
        try:
            self._engine.feed()
        except UnavailableError:
            self._sequences.discard(sequence)
            raise
        return sequence

    def context_shift(self, request: Submit) -> ContextShift | None:
        """What becomes of a full context: its first `n_keep` tokens stay (-1: all of the prompt), after BOS.

        None: the sequence ends.
        """
        if not self.shifts:
            return None
        prompt, n_keep = request.tokens, request.n_keep or 0
        n_bos = int(self._vocabulary.adds_bos and prompt[:1] == [self._vocabulary.bos])
        n_kept = len(prompt) if n_keep < 0 else min(n_keep + n_bos, len(prompt))
        return ContextShift(self.n_ctx, min(n_kept, self.n_ctx - _LEAST_SHIFTED))

    def cancel(self, sequence: LiveSequence) -> None:
        """Generate no more of it; does nothing if it has ended."""
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

    def check_prompt(self, prompt: Sequence[int]) -> None:
        """Raises RequestError for one that is empty, or leaves no room for an answer."""
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
