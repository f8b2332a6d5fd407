"""The chunks of a streamed answer: what chat and text completions share of them."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from lead.api import shapes
from lead.api.answers import Answers
from lead.api.fields import GenerationFields
from lead.completions import Outcome, Piece

Body = dict[str, Any]
"""What a choice says, next to its index and reason."""


class Teller(Protocol):
    """Tells one answer as the bodies of choices."""

    def begin(self) -> list[Body]:
        """What comes before any text."""

    def push(self, text: str) -> list[Body]:
        """What has become certain with `text`."""

    def finish(self, outcome: Outcome) -> tuple[list[Body], Body, str]:
        """What was held back, the body of the last choice, and its reason."""


async def chunks(
    answers: Answers, frame: dict[str, Any], fields: GenerationFields, teller: Callable[[], Teller]
) -> AsyncIterator[dict[str, Any]]:
    """OpenAI's chunks: role first, no empty ones, one finish_reason per answer, usage if asked for.

    `frame` is what every chunk carries; `teller` makes one for each answer.
    """
    tellers: dict[int, Teller] = {}
    pending: dict[int, list[Piece]] = {}
    outcomes: list[Outcome] = []
    try:
        async for index, item in answers:
            if index not in tellers:
                tellers[index] = teller()
                for body in tellers[index].begin():
                    yield frame | {"choices": [_choice(index, body)]}
            pieces = pending.setdefault(index, [])
            if isinstance(item, Outcome):
                outcomes.append(item)
                bodies, last, reason = tellers[index].finish(item)
            else:
                pieces.append(item)
                bodies = tellers[index].push(item.text)
            for body in bodies:
                yield frame | {"choices": [_choice(index, body)]} | _speculation(pieces, fields)
                pieces.clear()
            if isinstance(item, Outcome):
                yield frame | _last(index, item, last, reason) | _speculation(pieces, fields)
    finally:
        await answers.aclose()  # type: ignore[attr-defined]  # an async generator, which AsyncIterator does not say
    if fields.wants_usage:
        yield frame | {"choices": [], "usage": shapes.usage(outcomes)}


def _last(index: int, outcome: Outcome, body: Body, reason: str) -> dict[str, Any]:
    return {
        "choices": [_choice(index, body) | {"finish_reason": reason}],
        "timings": shapes.timings(outcome),
        "seed": outcome.seed,
    }


def _choice(index: int, body: Body) -> dict[str, Any]:
    return {"index": index, **body, "logprobs": None, "finish_reason": None}


def _speculation(pieces: list[Piece], fields: GenerationFields) -> dict[str, Any]:
    if not fields.return_speculation or not pieces:
        return {}
    return {"speculation": shapes.speculation(pieces)}
