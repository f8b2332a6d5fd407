"""The answers to one request, as a stream of updates that every API renders."""

import functools
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lead.chat_format.deltas import AssistantMessage, Content, Delta
from lead.chat_format.parser import OutputParser
from lead.engine.events import Committed, PromptProgress
from lead.engine_client.answer_stats import AnswerStats, VerifiedDraft, current_request, seconds_between
from lead.engine_client.assembler import Assembler, TextToken
from lead.engine_client.front_vocabulary import FrontVocabulary
from lead.engine_client.sequences import Broadcast, LiveSequence
from lead.http.generation_request import GenerationRequest
from lead.http.services import Services

EndReason = Literal["stop", "length", "tool_calls"]
"""OpenAI's finish_reason."""


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The end of an answer. drafts: the verified drafts of its steps, in order."""

    reason: EndReason
    seed: int
    slot: int | None
    stop_string: str | None  # the stop string that ended the text
    stats: AnswerStats
    drafts: tuple[VerifiedDraft, ...] = ()


@dataclass(slots=True)
class AnswerUpdate:
    """An update of one answer: text that became final, its end, or the progress of reading its prompt.

    index: the number of the submission. deltas: the parsed text. n_drafted, n_accepted: the numbers of
    verified and of accepted draft tokens in the steps that made `tokens`. n_cached: prompt tokens found
    in the KV cache; 0 in updates about the prompt. stats: the statistics so far, if requested.
    """

    index: int
    tokens: list[TextToken] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)
    n_drafted: int = 0
    n_accepted: int = 0
    n_cached: int = 0
    stats: AnswerStats | None = None
    progress: PromptProgress | None = None
    end: AnswerEnd | None = None

    @property
    def text(self) -> str:
        """The whole text of the update, as the model wrote it."""
        return "".join(token.text for token in self.tokens)


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """All updates of an answer, and its end."""

    updates: list[AnswerUpdate]
    end: AnswerEnd

    @property
    def tokens(self) -> list[TextToken]:
        return [token for update in self.updates for token in update.tokens]

    @property
    def deltas(self) -> list[Delta]:
        return [delta for update in self.updates for delta in update.deltas]

    @property
    def text(self) -> str:
        return "".join(update.text for update in self.updates)

    @property
    def message(self) -> AssistantMessage:
        return AssistantMessage.of(self.deltas)


async def answer_updates(request: GenerationRequest, services: Services) -> AsyncGenerator[AnswerUpdate]:
    """Yield updates of all answers; the last update of each answer has an `end`.

    Nothing is submitted before the generator is first advanced. Closing it early cancels all answers. Raises
    RequestError, UnavailableError or QueueFullError if a sequence cannot begin or continue.
    """
    engine, stats, changed = services.engine, current_request.get(), Broadcast()
    readers: list[_AnswerReader] = []
    try:
        for index, submission in enumerate(request.submissions):
            sequence = engine.submit(submission, private=request.private, changed=changed)
            readers.append(_AnswerReader(index, sequence, request, services.vocabulary))
        while unfinished := [reader for reader in readers if not reader.finished]:
            change = changed.next_change()
            for reader in unfinished:
                for update in reader.read():
                    if update.end:
                        engine.cancel(reader.sequence)  # it may go on after a stop string
                        if request.remember:
                            request.remember(reader.sequence.generated)
                    yield update
            if not all(reader.finished for reader in unfinished):
                await change.wait()
    finally:
        for reader in readers:
            engine.cancel(reader.sequence)
            if stats:
                stats.add(reader.sequence)


async def whole_answers(request: GenerationRequest, services: Services) -> list[WholeAnswer]:
    """Wait until all answers have ended, and return them; raises the errors of `answer_updates`."""
    updates: list[list[AnswerUpdate]] = [[] for _ in request.submissions]
    ends: dict[int, AnswerEnd] = {}
    async for update in answer_updates(request, services):
        updates[update.index].append(update)
        if update.end:
            ends[update.index] = update.end
    return [WholeAnswer(each, ends[index]) for index, each in enumerate(updates)]


class _AnswerReader:
    """Reads one sequence: turns its committed tokens into text, and the text into deltas."""

    def __init__(
        self, index: int, sequence: LiveSequence, request: GenerationRequest, vocabulary: FrontVocabulary
    ) -> None:
        special = request.parser.special_tokens if request.parser else ()

        def piece(token: int) -> bytes:
            return vocabulary.piece(token, special=token in special)

        self.sequence = sequence
        self.finished = False
        self._index = index
        self._request = request
        self._assembler = Assembler(piece if special else vocabulary.piece, request.stops)
        self._parser = OutputParser(request.parser) if request.parser else None
        self._drafts: list[VerifiedDraft] = []
        self._n_progress = 0

    def read(self) -> Iterator[AnswerUpdate]:
        """Yield the new part of the answer. Raises the error with which the sequence failed."""
        while not self.finished:
            for progress in self.sequence.progress[self._n_progress :]:
                self._n_progress += 1
                yield AnswerUpdate(self._index, progress=progress)
            if steps := self.sequence.take_steps():
                yield self._text_of(steps)
            elif not self.sequence.ended:
                return
            if not steps or self._is_enough:
                yield self._finish()

    @property
    def _is_enough(self) -> bool:
        return self._assembler.stop is not None or self._is_late

    @property
    def _is_late(self) -> bool:
        """True if llama-server's `t_max_predict_ms` is over and the text has a line break."""
        limit, sequence = self._request.max_seconds, self.sequence
        if limit is None or not self._assembler.has_new_line:
            return False
        return seconds_between(sequence.first_token_at, sequence.last_token_at) >= limit

    def _text_of(self, steps: Sequence[Committed]) -> AnswerUpdate:
        tokens = [token for step in steps for token in self._assembler.push(step)]
        self._drafts += [_verified(step.n_drafted, step.n_accepted) for step in steps if step.n_drafted]
        return AnswerUpdate(
            self._index,
            tokens,
            self._parse(tokens),
            n_drafted=sum(step.n_drafted for step in steps),
            n_accepted=sum(step.n_accepted for step in steps),
            n_cached=self.sequence.n_cached,
            stats=self._stats() if self._request.timings_per_token else None,
        )

    def _finish(self) -> AnswerUpdate:
        sequence, stop = self.sequence, self._assembler.stop
        self.finished = True
        if sequence.failure and not self._is_enough:
            raise sequence.failure
        late = self._is_late
        tokens = self._assembler.finish()
        deltas = self._parse(tokens)
        reason: EndReason = sequence.finish_reason or ("length" if late else "stop")
        if stop is not None:
            reason = "stop"
        if self._parser:
            deltas += self._parser.finish(is_cut=reason == "length")
            if reason == "stop" and self._parser.n_calls:
                reason = "tool_calls"
        drafts = tuple(self._drafts)
        end = AnswerEnd(reason, sequence.request.sampling.seed, sequence.slot, stop, self._stats(), drafts)
        return AnswerUpdate(self._index, tokens, deltas, n_cached=sequence.n_cached, end=end)

    def _parse(self, tokens: Sequence[TextToken]) -> list[Delta]:
        text = "".join(token.text for token in tokens)
        if self._parser:
            return self._parser.push(text)
        return [Content(text)] if text else []

    def _stats(self) -> AnswerStats:
        return AnswerStats.of(self.sequence, self._assembler.n_tokens)


@functools.cache
def _verified(n_drafted: int, n_accepted: int) -> VerifiedDraft:
    """Return an object that equal drafts share, because an endless answer has millions of drafts."""
    return VerifiedDraft(n_drafted, n_accepted)
