"""Options that limit the resources that a client or a back may use, each with a default."""

from pydantic import Field

from shared.protocol import MAX_BACK_MESSAGE_BYTES, MAX_DRAFT_TOKENS, MAX_DRAFTS_PER_SECOND
from shared.sampling.parameters import MAX_TEXT_TOKENS
from shared.settings.options import OptionGroup


class RequestLimits(OptionGroup):
    """Limits on requests, connections and drafts."""

    max_body_bytes: int = Field(
        4 << 20,
        ge=1024,
        le=1 << 30,
        description="maximum size of a request body. Larger bodies get 413. Default with a projector or "
        "--models-dir: 48 MiB",
    )
    header_seconds: float = Field(
        10.0,
        gt=0,
        le=3600,
        description="close a connection whose request headers have not arrived after this many seconds",
    )
    body_seconds: float = Field(
        60.0,
        gt=0,
        le=3600,
        description="answer 408 if the body of a request has not arrived this many seconds after its headers",
    )
    write_seconds: float = Field(
        60.0,
        gt=0,
        le=86_400,
        description="disconnect a client or back that has read nothing for this many seconds",
    )
    ping_seconds: float = Field(
        20.0,
        gt=0,
        le=3600,
        description="interval between pings to a back, and the maximum time for a reply",
    )
    prepare_seconds: float = Field(
        4.0,
        gt=0,
        le=3600,
        description="maximum CPU time for rendering, tokenizing and checking a request. Each MB of the "
        "request adds half of this value. Requests that take longer get 400",
    )
    max_prompt_tokens: int = Field(
        0,
        ge=0,
        le=MAX_TEXT_TOKENS,
        description="maximum length of a prompt; 0: the context size of one request",
    )
    max_queue: int = Field(
        128,
        ge=0,
        le=1 << 16,
        description="maximum number of requests that wait for a slot. More requests get 503 with Retry-After",
    )
    max_n: int = Field(16, ge=1, le=1024, description="maximum number of choices per prompt (n)")
    max_prompts: int = Field(
        128,
        ge=1,
        le=4096,
        description="maximum number of prompts per request. Prompts times n must not exceed the larger of "
        "this value and --max-n",
    )
    max_stops: int = Field(32, ge=0, le=1024, description="maximum number of stop strings per request")
    max_stop_characters: int = Field(1024, ge=1, le=1 << 16, description="maximum length of a stop string")
    max_logit_bias: int = Field(1024, ge=0, le=1 << 16, description="maximum number of tokens in logit_bias")
    max_top_logprobs: int = Field(
        20, ge=0, le=1024, description="maximum number of alternatives per token (top_logprobs)"
    )
    max_grammar_bytes: int = Field(
        256 << 10,
        ge=0,
        le=1 << 24,
        description="maximum size of a grammar, or of the grammar that the lead makes from JSON schemas or "
        "tools (without descriptions); 0: no grammars. Backs cannot draft for requests whose "
        "grammar and logit_bias together exceed about 1 MB",
    )
    max_schema_depth: int = Field(
        32,
        ge=1,
        le=200,
        description="maximum nesting depth of a JSON schema. Request bodies can be about twice as deep",
    )
    max_tools: int = Field(128, ge=0, le=4096, description="maximum number of tools per request")
    max_backs: int = Field(64, ge=0, le=4096, description="maximum number of connected backs")
    max_draft: int = Field(
        MAX_DRAFT_TOKENS,
        ge=1,
        le=MAX_DRAFT_TOKENS,
        description="maximum number of tokens in a draft. Longer drafts are rejected",
    )
    max_drafts_per_second: float = Field(
        MAX_DRAFTS_PER_SECOND,
        gt=0,
        le=1e6,
        description="maximum rate of drafts from one back. Drafts above this rate are dropped. A back that "
        "keeps sending more than three times as many is disconnected",
    )
    max_draft_bytes_per_second: int = Field(
        2 << 20,
        ge=MAX_BACK_MESSAGE_BYTES,
        le=1 << 30,
        description="maximum size of messages from one back per second. Messages above this rate are "
        "dropped. A back that keeps sending more than three times as much is disconnected",
    )
