"""Limits the host memory for earlier texts and checkpoints."""

from shared.free_memory import MEMORY_SHARE
from shared.llama.memory_plan import ContextNeeds
from shared.llama.memory_traits import MemoryTraits
from shared.memory.model_outline import MemoryProbe
from shared.settings.model_options import ModelOptions
from shared.terminal import size_text
from shared.text_store import NO_PROMPT_CACHE, PromptCacheSize

_PART_BYTES = 32 << 20
"""The bytes of a text that are stored or loaded in one step, in a few hundredths of a second."""


def n_prompt_checkpoints(traits: MemoryTraits, options: ModelOptions) -> int:
    """Return how many states of each slot may be stored in host memory, to reuse prompts."""
    if traits.can_trim:
        return 0
    all_bytes = options.parallel * max(1, traits.checkpoint_bytes)
    return min(options.ctx_checkpoints, (options.checkpoint_memory << 20) // all_bytes)


def size_prompt_cache(
    options: ModelOptions, probe: MemoryProbe, n_left: int, context: ContextNeeds
) -> PromptCacheSize:
    """Return the size of the prompt cache if `n_left` bytes are free."""
    if not context.can_store:
        return NO_PROMPT_CACHE
    n_bytes = max(0, int(MEMORY_SHARE * n_left))
    if options.cache_ram >= 0:
        n_bytes = min(n_bytes, options.cache_ram << 20)
    if not context.has_parts:
        return PromptCacheSize(n_bytes, probe.full_token_bytes, probe.checkpoint_bytes)
    token_bytes = probe.full_token_bytes + probe.window_token_bytes
    return PromptCacheSize(n_bytes, token_bytes, 0, _part(max(1, _PART_BYTES // max(1, token_bytes)), probe))


def _part(n_max: int, probe: MemoryProbe) -> int:
    """Return the number of tokens in a part. No part extends over two windows (Llama 4's windows begin at
    multiples of their size).
    """
    n_window = probe.n_window
    if n_window == 0:
        return n_max
    return n_window // next(n for n in range(1, n_window + 1) if n_window % n == 0 and n_window // n <= n_max)


def describe_prompt_cache(size: PromptCacheSize) -> str:
    """Return a sentence about the prompt cache, for the log and `--check`."""
    if size.n_bytes == 0:
        return "none"
    text = f"up to {size_text(size.n_bytes)} of earlier texts in host memory, "
    if size.state_bytes == 0:
        return f"{text}{size.n_bytes // size.token_bytes} tokens"
    per_token, per_state = size_text(size.token_bytes), size_text(size.state_bytes)
    return f"{text}{per_token} per token and {per_state} per text or checkpoint"


def describe_checkpoints(traits: MemoryTraits, options: ModelOptions) -> str:
    """Return a sentence about checkpoints, for the log and `--check`; empty if the memory needs none."""
    if traits.can_trim:
        return ""
    n, n_bytes = n_prompt_checkpoints(traits, options), traits.checkpoint_bytes
    if n == 0:
        return "none, so requests cannot reuse earlier prompts (--ctx-checkpoints, --checkpoint-memory)"
    at_most = size_text(n * n_bytes * options.parallel)
    return f"up to {n} per slot, {size_text(n_bytes)} each, {at_most} in all"
