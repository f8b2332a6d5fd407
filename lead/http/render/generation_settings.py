"""How an answer was sampled, under llama-server's names."""

from typing import Any

from lead.http.answers import Job
from shared.sampling.sampler import SamplingParameters

_WHAT_CLIENTS_SAID = ("stop", "logit_bias", "grammar", "dry_sequence_breakers")

_ABSENT = {
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "adaptive_target": -1.0,
    "adaptive_decay": 0.9,
    "n_keep": 0,
    "n_discard": 0,
    "min_keep": 0,
    "backend_sampling": False,
    "lora": [],
}
"""llama-server's values for what is switched off; there is no way to switch it on here."""


def generation_settings(job: Job, *, stream: bool) -> dict[str, Any]:
    """Everything, as the answer to the client itself tells it."""
    return sampling_settings(job.sampling, job.max_tokens) | {
        "stop": job.stops,
        "stream": stream,
        "logit_bias": [
            {"bias": bias, "token": token} for token, bias in sorted(job.sampling.logit_bias.items())
        ],
    }


def public_settings(sampling: SamplingParameters, max_tokens: int | None) -> dict[str, Any]:
    """Without the texts that a client sent: anybody may look."""
    settings = sampling_settings(sampling, max_tokens)
    return {name: value for name, value in settings.items() if name not in _WHAT_CLIENTS_SAID}


def sampling_settings(sampling: SamplingParameters, max_tokens: int | None) -> dict[str, Any]:
    """`max_tokens` None: -1, no limit."""
    n_predict = -1 if max_tokens is None else max_tokens
    given = sampling.model_dump(mode="json", exclude={"logit_bias"})
    return _ABSENT | given | {"max_tokens": n_predict, "n_predict": n_predict}
