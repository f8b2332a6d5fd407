"""The bounds on what a client or a back may ask of the lead: settings, each with a default and a reason."""

from pydantic import BaseModel, ConfigDict, Field

from shared.protocol import MAX_DRAFT_TOKENS, MAX_DRAFTS_PER_SECOND


class Bounds(BaseModel):
    """Mixed into the lead's settings, so each is an option, a variable and a line of a settings file."""

    model_config = ConfigDict(frozen=True)

    max_body_bytes: int = Field(
        4 << 20, ge=1024, le=1 << 30, description="largest request body of a client: some million tokens"
    )
    header_seconds: float = Field(
        10.0,
        gt=0,
        le=3600,
        description="a request's head must have arrived: slow ones hold a connection each",
    )
    body_seconds: float = Field(
        60.0, gt=0, le=3600, description="a request's body must have arrived after its head"
    )
    write_seconds: float = Field(
        60.0, gt=0, le=86_400, description="a client that takes nothing for so long has left"
    )
    ping_seconds: float = Field(
        20.0,
        gt=0,
        le=3600,
        description="a back is asked so often whether it is still there, and given as long to answer",
    )
    max_prompt_tokens: int = Field(
        0, ge=0, le=1 << 24, description="longest prompt; 0: as long as the context of one request"
    )
    max_queue: int = Field(
        128,
        ge=0,
        le=1 << 16,
        description="requests waiting for a slot; later ones are told to come back (503)",
    )
    max_n: int = Field(16, ge=1, le=1024, description="answers to one request (n): each is a sequence")
    max_prompts: int = Field(128, ge=1, le=4096, description="prompts in one request: each is a sequence")
    max_stops: int = Field(
        32, ge=0, le=1024, description="stop strings: every token's text is searched for each of them"
    )
    max_stop_characters: int = Field(1024, ge=1, le=1 << 16, description="longest stop string")
    max_logit_bias: int = Field(
        1024,
        ge=0,
        le=1 << 16,
        description="tokens with a bias; with a grammar backs take about 1 MB",
    )
    max_top_logprobs: int = Field(
        20, ge=0, le=1024, description="alternatives per token (top_logprobs); OpenAI's limit"
    )
    max_grammar_bytes: int = Field(
        64 << 10,
        ge=0,
        le=1 << 24,
        description="largest grammar, given or made from a schema; 0: none; backs take about 1 MB",
    )
    max_grammar_nesting: int = Field(
        64, ge=1, le=1000, description="deepest nesting in a grammar: llama.cpp parses it by recursion"
    )
    max_schema_depth: int = Field(
        32, ge=1, le=200, description="deepest nesting of a JSON schema, and of a request's body"
    )
    max_tools: int = Field(128, ge=0, le=4096, description="tools in one request; OpenAI's limit")
    max_backs: int = Field(64, ge=0, le=4096, description="backs connected at the same time")
    max_draft: int = Field(
        MAX_DRAFT_TOKENS,
        ge=1,
        le=MAX_DRAFT_TOKENS,
        description="longest draft: far more than is ever verified at once",
    )
    max_drafts_per_second: float = Field(
        MAX_DRAFTS_PER_SECOND,
        gt=0,
        le=1e6,
        description="drafts per second from one back, which is told to send no more; each costs 0.1 ms",
    )
