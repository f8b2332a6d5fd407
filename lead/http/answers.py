"""Following the answers of one HTTP request: one sequence per prompt, merged as they come."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from fastapi import Request

from lead.engine.commands import RequestOptions
from lead.generation.assembler import TextToken
from lead.generation.completions import Completions, Outcome, Piece
from lead.generation.sequences import Sequence
from lead.http.schema import GenerationFields
from lead.http.sse import unless_gone
from lead.server.services import Services
from lead.settings.limits import Bounds
from shared.errors import RequestError
from shared.sampling.sampler import MAX_SEED, SamplingParameters

Answers = AsyncGenerator[tuple[int, Piece | Outcome]]


@dataclass(slots=True)
class Answer:
    """A whole answer, for clients that do not stream."""

    pieces: list[Piece] = field(default_factory=list)
    outcome: Outcome | None = None

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> list[TextToken]:
        return [token for piece in self.pieces for token in piece.tokens]


@dataclass(frozen=True, slots=True)
class Job:
    """What a request asks to be generated: the same from each of its prompts.

    With `n` answers to each prompt it is in `prompts` so many times; their seeds are seed, seed + 1, …
    """

    prompts: list[list[int]]
    sampling: SamplingParameters
    max_tokens: int | None
    stops: list[str]
    prediction: list[int]
    n: int = 1
    options: RequestOptions = field(default_factory=RequestOptions)
    private: bool | None = None
    max_seconds: float | None = None
    tells_timings: bool = False
    shown: frozenset[int] = frozenset()
    """Control tokens whose text counts."""

    @classmethod
    async def read(cls, fields: GenerationFields, prompts: list[list[int]], services: Services) -> "Job":
        """Raises RequestError naming the field at fault."""
        fields.check()
        vocabulary, bounds, n_ctx = services.vocabulary, services.bounds, services.completions.n_ctx
        n = fields.n_answers(bounds.max_n)
        _check_prompts(prompts, n, bounds)
        options = RequestOptions(
            n_probs=fields.n_alternatives(bounds),
            filtered=bool(fields.post_sampling_probs),
            n_draft=fields.n_draft(),
            cache_prompt=fields.cache_prompt is not False,
            slot=fields.slot(services.n_slots),
            progress=bool(fields.return_progress and fields.stream),
        )
        grammar = await asyncio.to_thread(fields.constraint, vocabulary, bounds)
        return cls(
            [prompt for prompt in prompts for _ in range(n)],
            fields.sampling(vocabulary, n_ctx, services.defaults, bounds, grammar),
            fields.limit(services.defaults),
            fields.stops(bounds),
            await asyncio.to_thread(fields.predicted, vocabulary, n_ctx),
            n,
            options,
            fields.private,
            fields.time_limit(),
            bool(fields.timings_per_token and fields.stream),
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
        sequence = self._start(0, completions)
        async with contextlib.aclosing(self._follow(sequence, completions)) as items:
            async for item in items:
                yield 0, item

    async def _run_several(self, services: Services) -> AsyncGenerator[tuple[int, Piece | Outcome]]:
        completions = services.completions
        sequences: list[Sequence] = []
        followers = []
        queue: asyncio.Queue[tuple[int, Piece | Outcome] | BaseException] = asyncio.Queue()

        async def follow(index: int) -> None:
            try:
                async for item in self._follow(sequences[index], completions):
                    await queue.put((index, item))
            except Exception as error:  # noqa: BLE001 - raised again by whoever reads the queue
                await queue.put(error)

        try:
            sequences.extend(self._start(index, completions) for index in range(len(self.prompts)))
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

    def _start(self, index: int, completions: Completions) -> Sequence:
        sampling = self.sampling
        if index % self.n:
            sampling = sampling.model_copy(update={"seed": (sampling.seed + index % self.n) & MAX_SEED})
        return completions.start(
            self.prompts[index],
            sampling,
            self.max_tokens,
            self.prediction,
            private=self.private,
            options=self.options,
        )

    def _follow(self, sequence: Sequence, completions: Completions) -> AsyncGenerator[Piece | Outcome]:
        return completions.follow(
            sequence,
            self.stops,
            self.shown,
            max_seconds=self.max_seconds,
            tells_timings=self.tells_timings,
        )

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


def _check_prompts(prompts: list[list[int]], n: int, bounds: Bounds) -> None:
    if len(prompts) * n > max(bounds.max_prompts, bounds.max_n):
        raise RequestError(f"n: {n} answers to each of {len(prompts)} prompts are too many", "n")
    most = bounds.max_prompt_tokens
    for prompt in prompts:
        if most and len(prompt) > most:
            raise RequestError(f"the prompt has {len(prompt)} tokens; at most {most} are taken", "prompt")
