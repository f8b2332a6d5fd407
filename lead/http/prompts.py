"""Prompts as clients give them: text, token ids, or both in turns."""

import asyncio
from collections.abc import Sequence

from lead.server.services import Services
from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary

Prompt = str | Sequence[int | str]


async def tokenize(prompts: Sequence[Prompt], services: Services) -> list[list[int]]:
    """The tokens of each prompt; raises RequestError for too many prompts and for ids that are no tokens."""
    most = services.bounds.max_prompts
    if len(prompts) > most:
        raise RequestError(f"prompt: {len(prompts)} prompts; at most {most} are taken at once", "prompt")
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
