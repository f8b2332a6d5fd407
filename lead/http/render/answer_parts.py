"""Parts of answers that several APIs share: settings, timings, probabilities, speculation statistics."""

from collections.abc import Sequence
from typing import Any

from lead.engine.events import PromptProgress
from lead.engine.speculation.constants import MAX_DEPTH
from lead.engine_client.answer_stats import AnswerStats, VerifiedDraft
from lead.engine_client.assembler import TextToken
from lead.engine_client.front_vocabulary import FrontVocabulary
from lead.http.answers import AnswerEnd, AnswerUpdate
from lead.http.generation_request import GenerationRequest
from lead.settings.choices import SpecDecodeDetail
from shared.sampling.parameters import SamplingParameters


def timings(stats: AnswerStats) -> dict[str, Any]:
    """Return llama-server's `timings`.

    `predicted_ms` begins at the end of the first step, so the rates count the tokens after that step.
    """
    n_processed = stats.n_prompt - stats.n_cached
    return {
        "cache_n": stats.n_cached,
        "prompt_n": n_processed,
        "prompt_ms": _ms(stats.prompt_seconds),
        "prompt_per_token_ms": _ms(_ratio(stats.prompt_seconds, n_processed)),
        "prompt_per_second": _ratio(n_processed, stats.prompt_seconds),
        "predicted_n": stats.n_generated,
        "predicted_ms": _ms(stats.generation_seconds),
        "predicted_per_token_ms": _ms(_ratio(stats.generation_seconds, stats.n_after_first)),
        "predicted_per_second": stats.tokens_per_second or 0.0,
        "draft_n": stats.n_drafted,
        "draft_n_accepted": stats.n_accepted,
    }


def prompt_progress(progress: PromptProgress) -> dict[str, Any]:
    """Return the progress of reading the prompt; cached tokens count as processed."""
    return {
        "total": progress.n_total,
        "cache": progress.n_cached,
        "processed": progress.n_processed,
        "time_ms": _ms(progress.seconds),
    }


def timings_of_prompt(progress: PromptProgress) -> dict[str, Any]:
    """Return the `timings` before the first token."""
    n_cached = min(progress.n_cached, progress.n_processed)
    return timings(AnswerStats(progress.n_processed, n_cached, prompt_seconds=progress.seconds))


def speculation(updates: Sequence[AnswerUpdate]) -> dict[str, Any]:
    """Return each token with the source of its draft (null: not drafted), and the numbers of draft tokens."""
    return {
        "tokens": [
            {"text": token.text, "source": token.source} for update in updates for token in update.tokens
        ],
        "n_drafted": sum(update.n_drafted for update in updates),
        "n_accepted": sum(update.n_accepted for update in updates),
    }


def token_ids(tokens: Sequence[TextToken]) -> list[int]:
    """Return the ids of the tokens. Text of an incomplete character at the end has no id and is left out."""
    return [token.token for token in tokens if token.token >= 0]


def _ms(seconds: float) -> float:
    return seconds * 1000  # not rounded: clients divide by it


def _ratio(value: float, by: float) -> float:
    return value / by if by > 0 else 0.0


def spec_decode_metrics(ends: Sequence[AnswerEnd], detail: SpecDecodeDetail) -> dict[str, Any]:
    """Return the field `metrics` of an answer, as in vLLM; its value is null if there are several answers."""
    if detail == "none":
        return {}
    whole = _of_one(ends[0].drafts, detail) if len(ends) == 1 else None
    return {"metrics": {"speculative_decoding": whole}}


def _of_one(drafts: Sequence[VerifiedDraft], detail: SpecDecodeDetail) -> dict[str, Any]:
    n_drafted, n_accepted = sum(each.n_drafted for each in drafts), sum(each.n_accepted for each in drafts)
    lengths = sorted({each.n_drafted for each in drafts})
    metrics = {
        "mean_acceptance_length": 1 + n_accepted / len(drafts) if drafts else 1.0,
        "draft_acceptance_rate": n_accepted / n_drafted if n_drafted else 0.0,
        "acceptance_histogram": _histogram(drafts, MAX_DEPTH),
        "acceptance_histogram_by_draft_length": {
            str(length): _histogram([each for each in drafts if each.n_drafted == length], length)
            for length in lengths
        },
        "num_spec_steps": len(drafts),
        "num_accepted_draft_tokens": n_accepted,
        "num_draft_tokens": n_drafted,
        "num_spec_tokens": MAX_DEPTH,
    }
    if detail == "detailed":
        metrics["per_step_accepted"] = [each.n_accepted for each in drafts]
        metrics["per_step_drafted"] = [each.n_drafted for each in drafts]
    return metrics


def _histogram(drafts: Sequence[VerifiedDraft], longest: int) -> list[int]:
    """Return the numbers of steps that accepted 0, 1, … `longest` tokens."""
    counts = [0] * (longest + 1)
    for each in drafts:
        counts[each.n_accepted] += 1
    return counts


def chat_logprobs(tokens: Sequence[TextToken], vocabulary: FrontVocabulary) -> dict[str, Any] | None:
    """Return OpenAI's `logprobs` of a chat choice, with llama-server's token ids; None if not requested."""
    entries = token_probabilities(tokens, vocabulary)
    return {"content": entries, "refusal": None} if entries else None


def token_probabilities(
    tokens: Sequence[TextToken], vocabulary: FrontVocabulary, *, filtered: bool = False
) -> list[dict[str, Any]]:
    """Return llama-server's `completion_probabilities`.

    filtered: the values are probabilities after the sampling filters (`prob`), not log-probabilities
    (`logprob`).
    """
    name, several = ("prob", "top_probs") if filtered else ("logprob", "top_logprobs")
    return [
        {
            **_token(token.token, token.probabilities.chosen, name, vocabulary),
            several: [_token(other, value, name, vocabulary) for other, value in token.probabilities.top],
        }
        for token in tokens
        if token.probabilities is not None
    ]


class TextLogprobs:
    """OpenAI's `logprobs` of a text completion's choice, with each token's offset in the text."""

    def __init__(self, vocabulary: FrontVocabulary) -> None:
        self._vocabulary = vocabulary
        self._n_characters = 0

    def add(self, tokens: Sequence[TextToken]) -> dict[str, Any] | None:
        """Return the log-probabilities of the next tokens; None if not requested."""
        logprobs: dict[str, list[Any]] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        for token in tokens:
            offset = self._n_characters
            self._n_characters += len(token.text)
            if token.probabilities is None:
                continue
            logprobs["tokens"].append(_text(token.token, self._vocabulary))
            logprobs["token_logprobs"].append(token.probabilities.chosen)
            logprobs["top_logprobs"].append(
                {_text(other, self._vocabulary): value for other, value in token.probabilities.top}
            )
            logprobs["text_offset"].append(offset)
        return logprobs if logprobs["tokens"] else None


def _token(token: int, value: float, name: str, vocabulary: FrontVocabulary) -> dict[str, Any]:
    data = vocabulary.piece(token, special=True)
    return {"id": token, "token": _text(token, vocabulary), "bytes": list(data), name: value}


def _text(token: int, vocabulary: FrontVocabulary) -> str:
    """Return a token's text. Part of a character becomes U+FFFD; the field `bytes` has the actual bytes."""
    return vocabulary.piece(token, special=False).decode("utf-8", "replace")


_CLIENT_TEXTS = ("stop", "logit_bias", "grammar", "dry_sequence_breakers")

_ABSENT = {
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "adaptive_target": -1.0,
    "adaptive_decay": 0.9,
    "n_discard": 0,
    "min_keep": 0,
    "backend_sampling": False,
    "lora": [],
}
"""llama-server's values for features that the lead does not have."""


def generation_settings(request: GenerationRequest) -> dict[str, Any]:
    """Return all settings of a request, for the client that sent it."""
    first, sampling = request.first, request.first.sampling
    return sampling_settings(sampling, first.max_tokens) | {
        "n_keep": request.n_keep,
        "stop": request.stops,
        "grammar": request.gbnf or sampling.grammar,
        "stream": request.streamed,
        "logit_bias": [{"bias": bias, "token": token} for token, bias in sorted(sampling.logit_bias.items())],
    }


def public_settings(sampling: SamplingParameters | None, max_tokens: int | None) -> dict[str, Any]:
    """Return settings without texts of clients, for others to read; only the limit if `sampling` is None."""
    if sampling is None:
        return _limit(max_tokens)
    settings = sampling_settings(sampling, max_tokens)
    return {name: value for name, value in settings.items() if name not in _CLIENT_TEXTS}


def sampling_settings(sampling: SamplingParameters, max_tokens: int | None) -> dict[str, Any]:
    """Return all settings except the biases of tokens."""
    given = sampling.model_dump(mode="json", exclude={"logit_bias"})
    return _ABSENT | given | _limit(max_tokens)


def _limit(max_tokens: int | None) -> dict[str, Any]:
    """Return the limit under both of its names; the value -1 means no limit."""
    n_predict = -1 if max_tokens is None else max_tokens
    return {"max_tokens": n_predict, "n_predict": n_predict}
