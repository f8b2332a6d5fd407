"""The chunks of a streamed answer: what chat and text completions share of them."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from lead.api import shapes
from lead.api.answers import Answers
from lead.api.fields import GenerationFields
from lead.completions import Outcome, Piece

Delta = Callable[[str | None], dict[str, Any]]


async def chunks(
    answers: Answers, frame: dict[str, Any], fields: GenerationFields, delta: Delta, *, with_role: bool
) -> AsyncIterator[dict[str, Any]]:
    """OpenAI's chunks: role first, no empty ones, one finish_reason per answer, usage if asked for.

    `frame` is what every chunk carries; `delta` puts text (None: no text) into a choice.
    """
    pending: dict[int, list[Piece]] = {}
    outcomes: list[Outcome] = []
    try:
        async for index, item in answers:
            if with_role and index not in pending:
                yield frame | {"choices": [_choice(index, {"delta": {"role": "assistant", "content": ""}})]}
            pieces = pending.setdefault(index, [])
            if isinstance(item, Outcome):
                outcomes.append(item)
                yield frame | _last(index, item, pieces, fields, delta)
                continue
            pieces.append(item)
            if text := "".join(piece.text for piece in pieces):
                yield frame | {"choices": [_choice(index, delta(text))]} | _speculation(pieces, fields)
                pieces.clear()
    finally:
        await answers.aclose()  # type: ignore[attr-defined]  # an async generator, which AsyncIterator does not say
    if fields.wants_usage:
        yield frame | {"choices": [], "usage": shapes.usage(outcomes)}


def _last(
    index: int, outcome: Outcome, pieces: list[Piece], fields: GenerationFields, delta: Delta
) -> dict[str, Any]:
    choice = _choice(index, delta(None)) | {"finish_reason": outcome.reason}
    return {
        "choices": [choice],
        "timings": shapes.timings(outcome),
        "seed": outcome.seed,
    } | _speculation(pieces, fields)


def _choice(index: int, content: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, **content, "logprobs": None, "finish_reason": None}


def _speculation(pieces: list[Piece], fields: GenerationFields) -> dict[str, Any]:
    if not fields.return_speculation or not pieces:
        return {}
    return {"speculation": shapes.speculation(pieces)}
