"""Known request fields that are not supported: hints, which are ignored, and fields that are refused unless
their value asks for nothing.

docs/compatibility.md shows this list as a table. Fields that are neither supported nor listed here are
refused as unknown, so that no field is silently ignored.
"""

import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from shared.terminal import one_line

log = logging.getLogger("lead")
_MAX_SHOWN = 64
"""The longest name from a client in the log, in characters; and the number of names remembered as logged."""


@dataclass(frozen=True, slots=True)
class Unused:
    """A field that is not supported, and the reason.

    harmless: values that request nothing; None: all values, as the field is a hint. below: numbers below this
    are harmless, too. same_as: a supported field; with the same value, the unsupported field is harmless.
    beside: a field; if its value is neither 0 nor empty, the unsupported field is harmless.
    """

    reason: str
    harmless: tuple[object, ...] | None = ()
    below: float | None = None
    same_as: str | None = None
    beside: str | None = None

    def is_harmless(self, value: object, request: Mapping[str, Any]) -> bool:
        """Return whether `request` means the same without the field."""
        if self.harmless is None or value in self.harmless:
            return True
        if self.below is not None and isinstance(value, int | float) and value < self.below:
            return True
        return request.get(self.same_as or "") == value or bool(request.get(self.beside or ""))


Fields = dict[str, Unused]


@functools.lru_cache(_MAX_SHOWN)  # the log says so once
def warn_left_out(what: str, reason: str) -> None:
    """Log once that requests contain a part that is ignored, because clients can continue without it."""
    log.warning("%s: left out: %s", one_line(what, _MAX_SHOWN), reason)


def _hints(reason: str, names: str) -> Fields:
    return dict.fromkeys(names.split(), Unused(reason, None))


def _instead(pairs: str) -> Fields:
    """Return an unused field for each `NAME=OUR_NAME` in `pairs`."""
    names = (pair.split("=") for pair in pairs.split())
    return {name: Unused(f"it is called {ours} here", same_as=ours) for name, ours in names}


_THINKING = "use chat_template_kwargs, with enable_thinking"
_NO_SAMPLER = "this sampler is not supported"

SAMPLING: Final = (
    {
        "mirostat": Unused(
            "its random numbers cannot be shared with backs. Use min_p or top_n_sigma",
            (0,),
        ),
        "adaptive_target": Unused(
            "it depends on all earlier probabilities, which drafts do not know", below=0
        ),
        "min_keep": Unused("filters always keep at least one token", (0, 1)),
        "tfs_z": Unused(_NO_SAMPLER, (1,)),
    }
    | _hints("its sampler is not supported", "mirostat_tau mirostat_eta adaptive_decay")
    | _hints("the tokens are the same, wherever they are sampled", "backend_sampling")
    | _hints("llama.cpp penalizes newlines, too", "penalize_nl penalize_newline")
)
"""Unused sampling fields of every API, in addition to `shared.sampling.parameters`."""

OPENAI_LIKE: Final = _hints(
    "for a provider's own records and queues",
    "user store service_tier safety_identifier prompt_cache_key prompt_cache_retention "
    "prompt_cache_options client_metadata request_id rid",
) | {
    "skip_special_tokens": Unused("control tokens are never shown", (True,)),
    "spaces_between_special_tokens": Unused("control tokens are never shown", (True,)),
    "no_stop_trim": Unused("stop strings are never shown", (False,)),
    "include_stop_str_in_output": Unused("stop strings are never shown", (False,)),
    "separate_reasoning": Unused("use reasoning_format", (True,)),
    "stream_reasoning": Unused("reasoning is always streamed", (True,)),
    "return_hidden_states": Unused("hidden states are not returned", (False,)),
    "priority": Unused("requests are served in turn", (0,)),
    "repetition_penalty": Unused("use repeat_penalty", (1,), same_as="repeat_penalty"),
    "min_tokens": Unused("a minimum length is not supported, only ignore_eos", (0,), beside="ignore_eos"),
    "stop_token_ids": Unused("use stop with the text of these tokens", ([],)),
    "length_penalty": Unused("beam search is not supported", (1,)),
    "use_beam_search": Unused("beam search is not supported", (False,)),
    "early_stopping": Unused("beam search is not supported", (False,)),
}
"""Fields of OpenAI's and similar APIs. Routers and clients of vLLM and SGLang send some, with default values.
"""

LLAMA_SERVER: Final = (
    SAMPLING
    | OPENAI_LIKE
    | _hints("--context-shift always discards half of the tokens after n_keep", "n_discard")
    | _hints("only common prefixes of prompts are reused", "n_cache_reuse")
    | _hints("llama-server ignores it, too", "t_max_prompt_ms")
    | _hints("answers do not end at a smaller indentation", "n_indent")
    | _hints(
        "the lead chooses the number of draft tokens, up to speculative.n_max",
        "speculative.n_min speculative.p_min speculative.type speculative.ngram_size_n "
        "speculative.ngram_size_m speculative.ngram_m_hits",
    )
    | _hints(
        "returned by llama-server's /apply-template for /completion",
        "chat_format preserved_tokens parse_tool_calls generation_prompt thinking_forced_open "
        "reasoning_in_content",
    )
    | {
        "grammar_lazy": Unused("a grammar applies from the first token", (False,)),
        "grammar_triggers": Unused("a grammar applies from the first token", ([],)),
        "image_data": Unused("only text is supported", ([],)),
    }
)

NATIVE: Final = (
    LLAMA_SERVER
    | _instead(
        "max_new_tokens=n_predict num_predict=n_predict typical=typical_p sampler_seed=seed "
        "nsigma=top_n_sigma rep_pen=repeat_penalty rep_pen_range=repeat_last_n "
        "repetition_penalty_range=repeat_last_n stopping_strings=stop grammar_string=grammar "
        "ban_eos_token=ignore_eos mirostat_mode=mirostat"
    )
    | {
        "custom_token_bans": Unused("use logit_bias", ("",), beside="logit_bias"),
        "dynamic_temperature": Unused("use dynatemp_range", (False,), beside="dynatemp_range"),
        "dynatemp_low": Unused("use dynatemp_range", beside="dynatemp_range"),
        "dynatemp_high": Unused("use dynatemp_range", beside="dynatemp_range"),
        "top_a": Unused(_NO_SAMPLER, (0,)),
        "tfs": Unused(_NO_SAMPLER, (1,)),
        "skew": Unused(_NO_SAMPLER, (0,)),
        "smoothing_factor": Unused(_NO_SAMPLER, (0,)),
        "rep_pen_slope": Unused(_NO_SAMPLER, (0, 1)),
        "guidance_scale": Unused("guidance is not supported", (1,)),
        "negative_prompt": Unused("guidance is not supported", ("",)),
        "banned_strings": Unused("only tokens can be banned. Use logit_bias", ([],)),
        "max_tokens_second": Unused("answers are not slowed down", (0,)),
        "add_bos_token": Unused("the model decides", (True,)),
    }
    | _hints("its sampler is not supported", "smoothing_curve")
    | _hints(
        "not needed: set by the client or by the lead's options",
        "api_type api_server num_ctx truncation_length include_reasoning",
    )
)
"""Fields of `/completion` and `/infill`. SillyTavern sends fields of other servers, too."""

OPENAI: Final = (
    LLAMA_SERVER
    | _hints("a hint about the length of answers", "verbosity")
    | _hints("stored by providers with the answer", "metadata")
    | _hints("for proxies between client and server", "usage session_id chat_id cache_control keep_alive")
    | {
        "return_tokens": Unused("return_token_ids returns them", (False,)),
        "thinking": Unused(_THINKING, beside="chat_template_kwargs"),
        "enable_thinking": Unused(_THINKING, beside="chat_template_kwargs"),
        "reasoning": Unused("use reasoning_effort", beside="reasoning_effort"),
        "include_reasoning": Unused("use reasoning_format", (True,)),
        "audio": Unused("only text is supported"),
        "modalities": Unused("only text is supported", (["text"],)),
        "moderation": Unused("not supported"),
        "web_search_options": Unused("only functions can be called"),
        "functions": Unused("use tools", ([],)),
        "function_call": Unused("use tool_choice", ("auto", "none")),
    }
)

RESPONSES: Final = (
    SAMPLING
    | OPENAI_LIKE
    | _hints("how events are padded", "stream_options")
    | _hints("limits the calls of OpenAI's own tools", "max_tool_calls")
    | _hints("an agreement with OpenAI", "access_programs")
    | {
        "context_management": Unused("an input that does not fit is refused"),
        "image": Unused("only text is supported"),
        "moderation": Unused("not supported"),
        "personality": Unused("write it into the instructions"),
        "prompt": Unused("the lead stores nothing. Send the text"),
        "top_logprobs": Unused("use /v1/chat/completions", (0,)),
        "truncation": Unused("an input that does not fit is refused", ("disabled",)),
    }
)

ANTHROPIC: Final = (
    SAMPLING
    | _hints(
        "for Anthropic's records and queues",
        "metadata service_tier inference_geo speed diagnostics billing_policy fallbacks "
        "fallback_credit_token user_profile_id workspace_id",
    )
    | _hints("prompts are always cached", "cache_control")
    | _hints("the lead reads the whole request", "context_management")
    | _hints("a version of Anthropic's API", "betas anthropic_beta anthropic_version")
    | {
        "compaction": Unused("the lead stores no conversations. Send all messages"),
        "container": Unused("the lead does not run code"),
        "mcp_servers": Unused("the lead calls no MCP servers. Send their tools", ([],)),
        "thread": Unused("the lead stores no conversations. Send all messages"),
    }
)

OLLAMA: Final = (
    _hints("prompts that do not fit are refused. --context-shift is for answers", "truncate shift")
    | _hints("set by the lead's options", "num_ctx")
    | {
        "context": Unused("the lead stores no conversations. Send all messages to /api/chat", ([],)),
        "logprobs": Unused("use /v1/chat/completions", (False,)),
        "top_logprobs": Unused("use /v1/chat/completions", (0,)),
    }
)

OLLAMA_OPTIONS: Final = SAMPLING | _hints(
    "set by the lead's options",
    "num_ctx num_batch num_gpu main_gpu num_thread use_mmap use_mlock low_vram f16_kv numa vocab_only "
    "logits_all embedding_only rope_frequency_base rope_frequency_scale draft_num_predict",
)
