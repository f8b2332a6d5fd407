"""Renders answers as OpenAI's chat completions and text completions.

Adds llama-server's fields, and vLLM's `return_token_ids`.
"""

import secrets
import time
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from lead.chat_format.deltas import (
    AssistantMessage,
    Content,
    Delta,
    Reasoning,
    ToolCallArguments,
    ToolCallStart,
)
from lead.engine.commands import OWN_SOURCES
from lead.engine_client.answer_stats import SourceStats
from lead.engine_client.assembler import TextToken
from lead.http.answers import AnswerEnd, AnswerUpdate, WholeAnswer
from lead.http.generation_request import ChatRequest, GenerationRequest
from lead.http.render.answer_parts import (
    TextLogprobs,
    chat_logprobs,
    generation_settings,
    prompt_progress,
    spec_decode_metrics,
    speculation,
    timings,
    token_ids,
)
from lead.http.schema import GenerationFields
from lead.http.services import Services
from lead.http.sse import JsonObject, Renderer, SseEvent

Body = JsonObject
"""The content of a choice, without its index and finish_reason."""

_FINGERPRINT = "b-llama-duo"
"""The `system_fingerprint`. Some clients look for its `b`: llama-server's value is `b` and a build number."""


class _OpenAIRenderer(Renderer):
    """Renders chunks, none of them empty, with one finish_reason per answer, and usage if requested."""

    _last_body: ClassVar[Body]

    def __init__(
        self, body: GenerationFields, request: GenerationRequest, services: Services, frame: Body
    ) -> None:
        self._body = body
        self._request = request
        self._services = services
        self._detail = services.settings.per_request_spec_decode_metrics
        self._frame = frame | {
            "created": int(time.time()),
            "model": services.alias,
            "system_fingerprint": _FINGERPRINT,
        }
        self._unshown: defaultdict[int, list[AnswerUpdate]] = defaultdict(list)
        """By answer: the updates since the last chunk; the next chunk has their tokens and statistics."""
        self._ends: list[AnswerEnd] = []

    def render(self, update: AnswerUpdate) -> Iterator[SseEvent]:
        index = update.index
        if index not in self._unshown:
            self._unshown[index] = []
            yield from self._begin(index)
        if update.progress:
            yield self._frame | {"choices": [], "prompt_progress": prompt_progress(update.progress)}
            return
        if update.tokens or not update.end:
            self._unshown[index].append(update)
        for delta in update.deltas:
            yield self._chunk(index, self._delta_body(delta))
        if update.end:
            self._ends.append(update.end)
            chunk = self._chunk(index, self._last_body, update.end.reason)
            yield chunk | {"timings": timings(update.end.stats), "seed": update.end.seed}

    def finish(self) -> Iterator[SseEvent]:
        options = self._body.stream_options
        if options and options.include_usage:
            yield self._frame | {
                "choices": [],
                "usage": _usage(self._ends, self._request.n),
                "timings": timings(self._ends[-1].stats),
                **spec_decode_metrics(self._ends, self._detail),
            }
        yield "[DONE]"

    def whole(self, answers: list[WholeAnswer]) -> Body:
        ends = [answer.end for answer in answers]
        whole = self._frame | {
            "choices": [
                {
                    "index": index,
                    **self._whole_body(index, answer),
                    "logprobs": self._logprobs(index, answer.tokens),
                    **self._token_ids(answer.tokens),
                    "finish_reason": answer.end.reason,
                }
                for index, answer in enumerate(answers)
            ],
            "usage": _usage(ends, self._request.n),
            "timings": timings(ends[0].stats),
            "seed": ends[0].seed,
            **spec_decode_metrics(ends, self._detail),
        }
        if self._body.return_speculation:
            whole["speculation"] = speculation([update for answer in answers for update in answer.updates])
        return whole

    def _chunk(self, index: int, body: Body, reason: str | None = None) -> Body:
        updates = self._unshown[index]
        tokens = [token for update in updates for token in update.tokens]
        logprobs = self._logprobs(index, tokens) if updates else None
        choice = {
            "index": index,
            **body,
            "logprobs": logprobs,
            **self._token_ids(tokens),
            "finish_reason": reason,
        }
        chunk = self._frame | {"choices": [choice]}
        if updates and (stats := updates[-1].stats):
            chunk["timings"] = timings(stats)
        if updates and self._body.return_speculation:
            chunk["speculation"] = speculation(updates)
        self._unshown[index] = []
        return chunk

    def _token_ids(self, tokens: Sequence[TextToken]) -> Body:
        """Return the field `token_ids` of a choice; empty unless requested."""
        return {"token_ids": token_ids(tokens)} if self._body.return_token_ids else {}

    def _prompt_token_ids(self, index: int) -> Body:
        """Return the field `prompt_token_ids` of an answer's first chunk; empty unless requested."""
        prompt = self._request.submissions[index].tokens
        return {"prompt_token_ids": prompt} if self._body.return_token_ids else {}

    def _begin(self, index: int) -> Iterator[SseEvent]:  # noqa: ARG002 - for those that begin with a chunk
        yield from ()

    @abstractmethod
    def _delta_body(self, delta: Delta) -> Body:
        """Return the body of a chunk."""

    @abstractmethod
    def _whole_body(self, index: int, answer: WholeAnswer) -> Body:
        """Return the body of a whole answer."""

    @abstractmethod
    def _logprobs(self, index: int, tokens: Sequence[TextToken]) -> Body | None:
        """Return the log-probabilities of an answer's next tokens; None if not requested."""


class ChatRenderer(_OpenAIRenderer):
    """Renders `chat.completion` and its chunks; the first chunk has the role."""

    _last_body: ClassVar[Body] = {"delta": {}}

    def __init__(self, body: ChatRequest, request: GenerationRequest, services: Services) -> None:
        kind = "chat.completion.chunk" if request.streamed else "chat.completion"
        super().__init__(body, request, services, {"id": f"chatcmpl-{secrets.token_hex(12)}", "object": kind})
        self._verbose = body.shows_prompt(services.settings.log_level)

    def whole(self, answers: list[WholeAnswer]) -> Body:
        whole = super().whole(answers) | self._prompt_token_ids(0)
        if self._verbose:
            whole["__verbose"] = {
                "prompt": self._request.prompt_text(0),
                "generation_settings": generation_settings(self._request),
            }
        return whole

    def _begin(self, index: int) -> Iterator[SseEvent]:
        chunk = self._chunk(index, {"delta": {"role": "assistant", "content": None}})
        yield chunk | self._prompt_token_ids(index)

    def _delta_body(self, delta: Delta) -> Body:
        return {"delta": _delta(delta)}

    def _whole_body(self, index: int, answer: WholeAnswer) -> Body:
        del index
        return {"message": _message(answer.message)}

    def _logprobs(self, index: int, tokens: Sequence[TextToken]) -> Body | None:
        del index
        return chat_logprobs(tokens, self._services.vocabulary)


class CompletionRenderer(_OpenAIRenderer):
    """Renders text completions."""

    _last_body: ClassVar[Body] = {"text": ""}

    def __init__(
        self, body: GenerationFields, request: GenerationRequest, services: Services, *, echo: bool
    ) -> None:
        frame = {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion"}
        super().__init__(body, request, services, frame)
        self._echo = echo
        self._text_logprobs = defaultdict[int, TextLogprobs](lambda: TextLogprobs(services.vocabulary))
        self._begun: set[int] = set()

    def _chunk(self, index: int, body: Body, reason: str | None = None) -> Body:
        first = {} if index in self._begun else self._prompt_token_ids(index)
        self._begun.add(index)
        return super()._chunk(index, body | first, reason)

    def _delta_body(self, delta: Delta) -> Body:
        assert isinstance(delta, Content)  # nothing is parsed
        return {"text": delta.text}

    def _whole_body(self, index: int, answer: WholeAnswer) -> Body:
        echoed = self._request.prompt_text(index) if self._echo else ""
        return {"text": echoed + answer.text, **self._prompt_token_ids(index)}

    def _logprobs(self, index: int, tokens: Sequence[TextToken]) -> Body | None:
        return self._text_logprobs[index].add(tokens)


def _delta(delta: Delta) -> Body:
    match delta:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case ToolCallStart(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case ToolCallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _message(message: AssistantMessage) -> Body:
    fields: Body = {"role": "assistant", "content": message.content}
    if message.reasoning:
        fields["reasoning_content"] = message.reasoning
    if message.calls:
        fields["content"] = message.content or None
        fields["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    return fields


def _usage(ends: Sequence[AnswerEnd], n: int) -> Body:
    """Return `usage`: sums over all answers of a request; a prompt counts once for its `n` answers."""
    stats = [end.stats for end in ends]
    n_prompt = sum(each.n_prompt for each in stats) // n
    n_generated = sum(each.n_generated for each in stats)
    n_accepted = sum(each.n_accepted for each in stats)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_generated,
        "total_tokens": n_prompt + n_generated,
        "prompt_tokens_details": {"cached_tokens": sum(each.n_cached for each in stats) // n},
        "completion_tokens_details": {
            "accepted_prediction_tokens": n_accepted,
            "rejected_prediction_tokens": sum(each.n_drafted for each in stats) - n_accepted,
            **_by_source(each for stat in stats for each in stat.sources),
        },
    }


def _by_source(stats: Iterable[SourceStats]) -> dict[str, int]:
    """Return the numbers of draft tokens by source; all backs count as one source.

    The values are plain numbers, because clients add up the details of several answers.
    """
    sums = Counter[str]()
    for source, n_drafted, n_accepted in stats:
        name = source if source in OWN_SOURCES else "back"
        sums.update({f"{name}_draft_tokens": n_drafted, f"{name}_accepted_tokens": n_accepted})
    return dict(sums)
