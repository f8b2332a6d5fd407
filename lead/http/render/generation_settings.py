"""The sampling parameters of an answer, under llama-server's names."""

from typing import Any

from lead.http.generation_request import GenerationRequest
from shared.sampling.parameters import SamplingParameters

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


def generation_settings(request: GenerationRequest, *, stream: bool) -> dict[str, Any]:
    """All of them, for the client that sent the request."""
    return sampling_settings(request.sampling, request.max_tokens) | {
        "n_keep": request.n_keep,
        "stop": request.stops,
        "grammar": request.gbnf or request.sampling.grammar,
        "stream": stream,
        "logit_bias": [
            {"bias": bias, "token": token} for token, bias in sorted(request.sampling.logit_bias.items())
        ],
    }


def public_settings(sampling: SamplingParameters | None, max_tokens: int | None) -> dict[str, Any]:
    """Without texts sent by clients, since others can read it; without `sampling` only the limit."""
    if sampling is None:
        return _limit(max_tokens)
    settings = sampling_settings(sampling, max_tokens)
    return {name: value for name, value in settings.items() if name not in _CLIENT_TEXTS}


def sampling_settings(sampling: SamplingParameters, max_tokens: int | None) -> dict[str, Any]:
    """All but the biases of tokens."""
    given = sampling.model_dump(mode="json", exclude={"logit_bias"})
    return _ABSENT | given | _limit(max_tokens)


def _limit(max_tokens: int | None) -> dict[str, Any]:
    """`max_tokens` None: -1, no limit."""
    n_predict = -1 if max_tokens is None else max_tokens
    return {"max_tokens": n_predict, "n_predict": n_predict}
