"""Following the answers of one HTTP request: one sequence per prompt, merged as they come."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field

from fastapi import Request

from lead.api.fields import GenerationFields
from lead.api.sse import unless_gone
from lead.completions import Outcome, Piece
from lead.sequences import Sequence
from lead.services import Services
from shared.sampling import SamplingParameters

Answers = AsyncIterator[tuple[int, Piece | Outcome]]


@dataclass(slots=True)
class Answer:
    """A whole answer, for clients that do not stream."""

    pieces: list[Piece] = field(default_factory=list)
    outcome: Outcome | None = None

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Job:
    """What a request asks to be generated: the same from each of its prompts."""

    prompts: list[list[int]]
    sampling: SamplingParameters
    max_tokens: int | None
    stops: list[str]
    prediction: list[int]
    shown: frozenset[int] = frozenset()
    """Control tokens whose text counts."""

    @classmethod
    async def read(cls, fields: GenerationFields, prompts: list[list[int]], services: Services) -> "Job":
        """Raises RequestError naming the field at fault."""
        fields.check()
        vocabulary, n_ctx = services.vocabulary, services.completions.n_ctx
        return cls(
            prompts,
            fields.sampling(vocabulary, n_ctx, services.defaults),
            fields.limit(services.defaults),
            fields.stops(),
            await asyncio.to_thread(fields.predicted, vocabulary, n_ctx),
        )

    async def run(self, services: Services) -> Answers:
        """(index of the prompt, piece or outcome) as they come. Closing it early cancels all."""
        merged = self._run_one(services) if len(self.prompts) == 1 else self._run_several(services)
        async with contextlib.aclosing(merged) as items:
            async for item in items:
                yield item

    async def _run_one(self, services: Services) -> AsyncGenerator[tuple[int, Piece | Outcome]]:
        """Without a queue and a task between the engine's events and the client: it is the usual case."""
        completions = services.completions
        sequence = completions.start(self.prompts[0], self.sampling, self.max_tokens, self.prediction)
        async with contextlib.aclosing(completions.follow(sequence, self.stops, self.shown)) as items:
            async for item in items:
                yield 0, item

    async def _run_several(self, services: Services) -> AsyncGenerator[tuple[int, Piece | Outcome]]:
        completions = services.completions
        sequences: list[Sequence] = []
        followers = []
        queue: asyncio.Queue[tuple[int, Piece | Outcome] | BaseException] = asyncio.Queue()

        async def follow(index: int) -> None:
            try:
                async for item in completions.follow(sequences[index], self.stops, self.shown):
                    await queue.put((index, item))
            except Exception as error:  # noqa: BLE001 - raised again by whoever reads the queue
                await queue.put(error)

        try:
            sequences.extend(
                completions.start(prompt, self.sampling, self.max_tokens, self.prediction)
                for prompt in self.prompts
            )
            followers = [asyncio.ensure_future(follow(index)) for index in range(len(sequences))]
            n_open = len(followers)
            while n_open:
                item = await queue.get()
                if isinstance(item, BaseException):
                    raise item
                n_open -= isinstance(item[1], Outcome)
                yield item
        finally:
            for follower in followers:
                follower.cancel()
            await asyncio.gather(*followers, return_exceptions=True)
            for sequence in sequences:
                completions.cancel(sequence)

    async def collect(self, request: Request, services: Services) -> list[Answer]:
        """All answers whole; raises ClientGoneError if nobody waits for them any more."""
        return await unless_gone(request, self._collect(services))

    async def _collect(self, services: Services) -> list[Answer]:
        answers = [Answer() for _ in self.prompts]
        async for index, item in self.run(services):
            if isinstance(item, Piece):
                answers[index].pieces.append(item)
            else:
                answers[index].outcome = item
        return answers
