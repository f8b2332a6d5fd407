"""What one HTTP request asks the engine for, whatever API it came by."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from lead.chat.parser import ParserConfig
from lead.engine.commands import RequestOptions
from lead.http.request_sampling import sampling_parameters
from lead.http.schema import GenerationFields
from lead.server.services import Services
from lead.settings.limits import RequestLimits
from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary
from shared.sampling.parameters import MAX_SEED, SamplingParameters

Prompt = str | Sequence[int | str]
"""Text, token ids, or a mix of both."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What to generate from each of the prompts.

    `prompts` holds each prompt `n` times, for its `n` answers; their seeds are seed, seed + 1, …
    `gbnf` is the grammar as the client sent it. `parser` is None if all text is content; `special_tokens`
    are control tokens whose text it has to see.
    """

    prompts: list[list[int]]
    sampling: SamplingParameters
    max_tokens: int | None
    stops: list[str]
    prediction: list[int]
    n: int = 1
    gbnf: str | None = None
    options: RequestOptions = field(default_factory=RequestOptions)
    private: bool | None = None
    max_seconds: float | None = None
    timings_per_token: bool = False
    parser: ParserConfig | None = None
    special_tokens: frozenset[int] = frozenset()

    def sampling_of(self, index: int) -> SamplingParameters:
        """The parameters of one answer."""
        if index % self.n == 0:
            return self.sampling
        seed = (self.sampling.seed + index % self.n) & MAX_SEED
        return self.sampling.model_copy(update={"seed": seed})


async def read_request(
    fields: GenerationFields, prompts: list[list[int]], services: Services, grammar: str | None
) -> GenerationRequest:
    """Raises RequestError naming the field at fault. `grammar` has been checked."""
    fields.check()
    vocabulary, limits, n_ctx = services.vocabulary, services.limits, services.admission.n_ctx
    n = fields.n_answers(limits.max_n)
    _check_prompts(prompts, n, limits)
    return GenerationRequest(
        prompts=[prompt for prompt in prompts for _ in range(n)],
        sampling=sampling_parameters(fields, services, grammar),
        max_tokens=fields.limit(services.defaults),
        stops=fields.stops(limits),
        prediction=await asyncio.to_thread(fields.predicted, vocabulary, n_ctx),
        n=n,
        gbnf=fields.grammar or None,
        options=RequestOptions(
            n_probs=fields.n_alternatives(limits),
            filtered=bool(fields.post_sampling_probs),
            n_draft=fields.n_draft(),
            cache_prompt=fields.cache_prompt is not False,
            slot=fields.slot(services.n_slots),
            progress=bool(fields.return_progress and fields.stream),
        ),
        private=fields.private,
        max_seconds=fields.time_limit(),
        timings_per_token=bool(fields.timings_per_token and fields.stream),
    )


async def read_text_request(
    fields: GenerationFields, prompts: Sequence[Prompt], services: Services
) -> GenerationRequest:
    """A request to continue `prompts`; raises RequestError naming the field at fault."""
    tokens = await _tokenize_all(prompts, services)
    grammar = await asyncio.to_thread(fields.grammar_text, services.vocabulary, services.limits)
    return await read_request(fields, tokens, services, grammar)


async def _tokenize_all(prompts: Sequence[Prompt], services: Services) -> list[list[int]]:
    most = services.limits.max_prompts
    if len(prompts) > most:
        raise RequestError(f"prompt: {len(prompts)} prompts; at most {most} are accepted", "prompt")
    return [await asyncio.to_thread(_tokenize, prompt, services.vocabulary) for prompt in prompts]


def _tokenize(prompt: Prompt, vocabulary: Vocabulary) -> list[int]:
    """What the model wants around a prompt (BOS) is added where it begins with text."""
    tokens: list[int] = []
    for i, part in enumerate([prompt] if isinstance(prompt, str) else prompt):
        if isinstance(part, str):
            tokens += vocabulary.tokenize(part, add_special=i == 0, parse_special=True)
            continue
        try:
            tokens.append(vocabulary.check(part))
        except ValueError as error:
            raise RequestError(f"prompt: {error}", "prompt") from error
    return tokens


def _check_prompts(prompts: list[list[int]], n: int, limits: RequestLimits) -> None:
    if len(prompts) * n > max(limits.max_prompts, limits.max_n):
        raise RequestError(f"n: {n} answers to each of {len(prompts)} prompts are too many", "n")
    most = limits.max_prompt_tokens
    for prompt in prompts:
        if most and len(prompt) > most:
            raise RequestError(f"the prompt has {len(prompt)} tokens; at most {most} are accepted", "prompt")
