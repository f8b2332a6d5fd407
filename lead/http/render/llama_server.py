"""Renders answers in the format of llama-server's `POST /completion`."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lead.engine.context_shift import ContextShift
from lead.engine.events import PromptProgress
from lead.engine_client.assembler import TextToken
from lead.http.answers import AnswerEnd, AnswerUpdate, WholeAnswer
from lead.http.generation_request import GenerationRequest
from lead.http.render.answer_parts import (
    generation_settings,
    prompt_progress,
    timings,
    timings_of_prompt,
    token_ids,
    token_probabilities,
)
from lead.http.services import Services
from lead.http.sse import JsonObject, Renderer, SseEvent

_STOP_TYPES = {"length": "limit", "stop": "eos"}
_MISSING = object()


@dataclass(slots=True)
class _Streamed:
    n_tokens: int = 0
    has_new_line: bool = False


class LlamaServerRenderer(Renderer):
    """Renders a stream as objects with new text, and a last object for each answer.

    A whole response has only the last objects. With probabilities, each token has an object of its own.
    Progress of reading the prompt is sent in objects without text.
    """

    def __init__(
        self,
        request: GenerationRequest,
        services: Services,
        *,
        return_tokens: bool,
        response_fields: Sequence[str] | None,
    ) -> None:
        """response_fields: the paths of the fields that the last object has; None: all fields."""
        self._request = request
        self._services = services
        self._return_tokens = return_tokens
        self._response_fields = response_fields
        self._streamed: defaultdict[int, _Streamed] = defaultdict(_Streamed)

    def render(self, update: AnswerUpdate) -> Iterator[SseEvent]:
        if update.progress:
            yield self._progress(update.index, update.progress)
        for part in self._parts(update):
            if part.tokens:
                yield self._partial(part)
        if update.end:
            has_new_line = self._streamed[update.index].has_new_line
            yield self._last(update.index, update.end, has_new_line=has_new_line)

    def whole(self, answers: list[WholeAnswer]) -> Any:
        """Return the body of a whole response: an object for one answer, a list for several."""
        results = [self._whole(index, answer) for index, answer in enumerate(answers)]
        return results[0] if len(results) == 1 else results

    def _parts(self, update: AnswerUpdate) -> list[AnswerUpdate]:
        """Return the parts of an update that get an object each.

        With probabilities this is one part per token, as clients of llama-server expect.
        """
        if self._request.first.n_probs is None:
            return [update]
        return [replace(update, tokens=[token]) for token in update.tokens]

    def _progress(self, index: int, progress: PromptProgress) -> JsonObject:
        shown = self._part(index, "", []) | {"prompt_progress": prompt_progress(progress)}
        if self._request.timings_per_token:
            shown["timings"] = timings_of_prompt(progress)
        return shown

    def _partial(self, update: AnswerUpdate) -> JsonObject:
        ids, streamed = token_ids(update.tokens), self._streamed[update.index]
        streamed.n_tokens += len(ids)
        streamed.has_new_line = streamed.has_new_line or "\n" in update.text
        partial = self._part(update.index, update.text, ids)
        if update.stats:
            partial["timings"] = timings(update.stats)
        return partial | self._probabilities(update.tokens)

    def _part(self, index: int, content: str, ids: list[int]) -> JsonObject:
        return {
            "index": index,
            "content": content,
            "tokens": ids,
            "stop": False,
            "tokens_predicted": self._streamed[index].n_tokens,
            "tokens_evaluated": len(self._request.submissions[index].tokens),
        }

    def _probabilities(self, tokens: Sequence[TextToken]) -> JsonObject:
        first = self._request.first
        if first.n_probs is None or not tokens:
            return {}
        entries = token_probabilities(tokens, self._services.vocabulary, filtered=first.filtered)
        return {"completion_probabilities": entries}

    def _whole(self, index: int, answer: WholeAnswer) -> JsonObject:
        content = {
            "content": answer.text,
            "tokens": token_ids(answer.tokens) if self._return_tokens else [],
            **self._probabilities(answer.tokens),
        }
        return self._last(index, answer.end, content, has_new_line="\n" in answer.text)

    def _last(
        self, index: int, end: AnswerEnd, content: JsonObject | None = None, *, has_new_line: bool
    ) -> JsonObject:
        services, stats, n_keep = self._services, end.stats, self._request.submissions[index].n_keep
        n_tokens = stats.n_prompt + stats.n_generated
        shift = None if n_keep is None else ContextShift(services.n_ctx, n_keep)
        n_discarded = shift.n_discarded(n_tokens - 1) if shift else 0  # nothing follows the last one
        is_full = end.reason == "length" and n_tokens >= services.n_ctx
        last = {
            "index": index,
            "content": "",
            "tokens": [],
            "id_slot": end.slot,
            "stop": True,
            "model": services.alias,
            "tokens_predicted": stats.n_generated,
            "tokens_evaluated": stats.n_prompt,
            "generation_settings": generation_settings(self._request),
            "prompt": self._request.prompt_text(index),
            "has_new_line": has_new_line,
            "truncated": is_full or n_discarded > 0,
            "stop_type": "word" if end.stop_string is not None else _STOP_TYPES[end.reason],
            "stopping_word": end.stop_string or "",
            "tokens_cached": n_tokens - 1 - n_discarded,  # the last one is never decoded
            "timings": timings(stats),
        } | (content or {})
        return _select(last, self._response_fields) if self._response_fields else last


def _select(whole: JsonObject, paths: Iterable[str]) -> JsonObject:
    """Return the fields at `paths` such as `generation_settings/n_predict`, named by their paths.

    Unknown paths are skipped.
    """
    selected = {}
    for path in paths:
        value: Any = whole
        for key in path.split("/"):
            value = value.get(key, _MISSING) if isinstance(value, dict) else _MISSING
        if value is not _MISSING:
            selected[path] = value
    return selected
