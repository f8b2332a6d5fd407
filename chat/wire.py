"""The fields that chat reads from replies: OpenAI's, llama-server's timings, the lead's speculation.

This module only declares fields. Fields that are not OpenAI's are optional, so that any compatible server
works.
"""

from typing import Any

from pydantic import BaseModel

from shared.diagnostics.lead_probe import BackReport


class _ServerReply(BaseModel, frozen=True):
    pass


class ErrorBody(_ServerReply):
    message: str = ""


class ErrorReply(_ServerReply):
    error: ErrorBody | str | None = None

    @property
    def message(self) -> str:
        return self.error.message if isinstance(self.error, ErrorBody) else self.error or ""


class Delta(_ServerReply):
    """An increment of an answer. Reasoning is in `reasoning_content` (llama-server) or `reasoning` (vLLM)."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @property
    def thought(self) -> str:
        return self.reasoning_content or self.reasoning or ""


class Choice(_ServerReply):
    delta: Delta = Delta()
    finish_reason: str | None = None


class TokenText(_ServerReply):
    """A token of an answer. `source`: the back or drafter that proposed it, or None if it was not drafted."""

    text: str
    source: str | None = None


class Speculation(_ServerReply):
    """The tokens of a chunk, and the numbers of draft tokens since the previous chunk."""

    tokens: list[TokenText] = []
    n_drafted: int = 0
    n_accepted: int = 0


class Timings(_ServerReply):
    """llama-server's `timings`. `prompt_n` does not include the `cache_n` tokens found in the KV cache."""

    cache_n: int = 0
    prompt_n: int = 0
    prompt_ms: float = 0
    predicted_n: int
    predicted_per_second: float = 0
    draft_n: int = 0
    draft_n_accepted: int = 0


class Usage(_ServerReply):
    """The token counts of an answer."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class Chunk(ErrorReply):
    """An event of a streamed chat completion. An event with an `error` is the last one."""

    choices: list[Choice] = []
    speculation: Speculation | None = None
    timings: Timings | None = None
    seed: int | None = None
    usage: Usage | None = None


class BacksReply(_ServerReply):
    """The body of GET /v1/speculation."""

    backs: list[BackReport]


class ModelEntry(_ServerReply):
    """An entry of `/v1/models`. task: the task of a model that does not chat, such as `embedding`."""

    id: str
    task: Any = None


class ModelsReply(_ServerReply):
    """The body of GET /v1/models."""

    data: list[ModelEntry]
