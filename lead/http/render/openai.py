"""The chunks of a streamed answer: what chat and text completions share of them."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

from lead.generation.assembler import TextToken
from lead.generation.completions import Outcome, Piece
from lead.http.answers import Answers
from lead.http.render import stats as shapes
from lead.http.schema import GenerationFields

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

    def logprobs(self, tokens: Sequence[TextToken]) -> dict[str, Any] | None:
        """The next tokens' log-probabilities; None where none were asked for."""


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
            elif item.progress is not None:
                yield frame | {"choices": [], "prompt_progress": shapes.prompt_progress(item.progress)}
                continue
            else:
                pieces.append(item)
                bodies = tellers[index].push(item.text)
            for body in bodies:
                yield (
                    frame
                    | {"choices": [_choice(index, body, _logprobs(tellers[index], pieces))]}
                    | _extras(pieces, fields)
                )
                pieces.clear()
            if isinstance(item, Outcome):
                choice = _choice(index, last, _logprobs(tellers[index], pieces)) | {"finish_reason": reason}
                yield frame | {"choices": [choice]} | _extras(pieces, fields) | _figures(item)
    finally:
        await answers.aclose()
    if fields.wants_usage:
        usage = {
            "usage": shapes.usage(outcomes, fields.n_wanted),
            "timings": shapes.timings(outcomes[-1].figures),
        }
        yield frame | {"choices": [], **usage}


def _figures(outcome: Outcome) -> dict[str, Any]:
    return {"timings": shapes.timings(outcome.figures), "seed": outcome.seed}


def _choice(index: int, body: Body, logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"index": index, **body, "logprobs": logprobs, "finish_reason": None}


def _logprobs(teller: Teller, pieces: list[Piece]) -> dict[str, Any] | None:
    return teller.logprobs([token for piece in pieces for token in piece.tokens]) if pieces else None


def _extras(pieces: list[Piece], fields: GenerationFields) -> dict[str, Any]:
    """What the client has asked to be told beside the text."""
    extras: dict[str, Any] = {}
    if pieces and pieces[-1].so_far is not None:
        extras["timings"] = shapes.timings(pieces[-1].so_far)
    if pieces and fields.return_speculation:
        extras["speculation"] = shapes.speculation(pieces)
    return extras
