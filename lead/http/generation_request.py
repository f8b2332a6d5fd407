"""Converts a generation request of any API to submissions to the engine."""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from lead.chat_format.output_format import ParserConfig
from lead.chat_format.request import ConversationFields
from lead.engine.commands import Submit
from lead.http.client_gone import cancel_on_disconnect
from lead.http.error_responses import first_invalid
from lead.http.images import EncodedImage, with_markers
from lead.http.json_route import client_of
from lead.http.schema import GenerationFields, sampling_parameters
from lead.http.services import Services
from lead.settings.keys import ANYONE, Principal
from lead.settings.limits import RequestLimits
from lead.tokenizer.jobs import (
    FieldTexts,
    ImageRows,
    KnownTurn,
    MadePrompt,
    PreparedRequest,
    Prompt,
    TokenizerJobs,
    write_conversation,
)
from shared.errors import ContextExceededError, RequestError
from shared.image_span import without_images
from shared.logs import LogLevel
from shared.protocol import fits_into_open
from shared.sampling.parameters import MAX_SEED, SamplingParameters

log = logging.getLogger("lead")

_MIN_SHIFTED = 4
"""The context must have room for this many tokens after the kept tokens (as in llama-server)."""

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A submission for each of the `n` answers to each prompt, and options for presenting the answers.

    The submissions for a prompt differ only in their seeds: seed, seed + 1, … gbnf: the grammar as the client
    sent it. n_keep: the client's value, else the value of --keep; -1: the whole prompt. private: backs do not
    get the text. parser: the answer parser's settings; None: all text is content. prompt_texts: the text of
    each prompt, if the answer must show it. remember: called with the tokens of each answer. images: the
    images of the prompt, kept here because they must exist until generation ends.
    """

    submissions: list[Submit]
    stops: Sequence[str] = ()
    n: int = 1
    gbnf: str | None = None
    n_keep: int = 0
    private: bool = False
    streamed: bool = False
    max_seconds: float | None = None
    timings_per_token: bool = False
    parser: ParserConfig | None = None
    prompt_texts: Sequence[str] = ()
    remember: Callable[[Sequence[int]], None] | None = None
    images: Sequence[EncodedImage] = ()

    @property
    def first(self) -> Submit:
        """The first submission; the others differ only in prompt and seed."""
        return self.submissions[0]

    def prompt_text(self, index: int) -> str:
        """Return the text of a submission's prompt."""
        return self.prompt_texts[index // self.n]


def generation_request(
    fields: GenerationFields,
    prepared: PreparedRequest,
    services: Services,
    sender: Principal = ANYONE,
    images: Sequence[EncodedImage] = (),
) -> GenerationRequest:
    """Return the request for `fields` and their tokenized texts `prepared`; raises RequestError."""
    settings, limits = services.settings, services.settings.limits
    n, stops, max_seconds = fields.n_answers(limits.max_n), fields.stops(limits), fields.time_limit()
    _check_lengths(prepared, services)
    is_private = settings.security.private_by_default if fields.private is None else fields.private
    n_keep = settings.keep if fields.n_keep is None else fields.n_keep
    sampling = sampling_parameters(fields, services, prepared)
    _log_request(prepared, with_texts=settings.log_prompts and not is_private)
    common = _common_submit(fields, prepared, services, sampling).model_copy(
        update={
            "owner": None if is_private else sender.number,  # without keys all senders are one
            "keep_for": None if is_private else sender.id,
            # a stream, stop strings and a time limit look at the text as it comes
            "unread": not (fields.stream or stops or max_seconds is not None),
            "images": tuple(span for at, i in prepared.images for span in images[i].spans_at(at)),
        }
    )
    return GenerationRequest(
        submissions=[
            _submission(common, tokens, i, n_keep, services)
            for tokens in (prompt.tolist() for prompt in prepared.prompts)  # one list for all of its answers
            for i in range(n)
        ],
        stops=stops,
        n=n,
        gbnf=fields.grammar or None,
        n_keep=n_keep,
        private=is_private or not fits_into_open(sampling),
        streamed=bool(fields.stream),
        max_seconds=max_seconds,
        timings_per_token=bool(fields.timings_per_token and fields.stream),
        parser=prepared.parser,
        prompt_texts=prepared.prompt_texts,
        images=images,
    )


def _common_submit(
    fields: GenerationFields,
    prepared: PreparedRequest,
    services: Services,
    sampling: SamplingParameters,
) -> Submit:
    """Return a submission without prompt, images, seed and sender."""
    settings, limits = services.settings, services.settings.limits
    return Submit(
        tokens=[],
        sampling=sampling,
        max_tokens=fields.limit(settings.sampling),
        prediction=prepared.prediction[: services.n_ctx].tolist(),
        n_probs=fields.n_alternatives(limits),
        filtered=bool(fields.post_sampling_probs),
        n_draft=fields.n_draft(),
        cache_prompt=fields.cache_prompt is not False,
        slot=fields.slot(services.n_slots),
        progress=bool(fields.return_progress and fields.stream),
        checkpoints=prepared.cuts,
    )


def _log_request(prepared: PreparedRequest, *, with_texts: bool) -> None:
    for reason in prepared.unconstrained:
        _say_that_calls_are_free(reason)
    for text in prepared.prompt_texts if with_texts else ():
        log.info("prompt: %r", text)


def _submission(common: Submit, prompt: list[int], i: int, n_keep: int, services: Services) -> Submit:
    """Return the submission for answer `i` to a prompt."""
    changes: dict[str, int] = {"seed": (common.sampling.seed + i) & MAX_SEED}
    if common.sampling.is_constrained:
        changes["grammar_start"] = len(without_images(prompt))
    return common.model_copy(
        update={
            "tokens": prompt,
            "sampling": common.sampling.model_copy(update=changes),
            "n_keep": _n_kept(prompt, n_keep, services) if services.settings.context_shift else None,
        }
    )


def _n_kept(prompt: Sequence[int], n_keep: int, services: Services) -> int:
    """Return the number of tokens that a context shift keeps: BOS, and `n_keep` (-1: all) of the prompt."""
    vocabulary = services.vocabulary
    n_bos = int(vocabulary.adds_bos and prompt[:1] == [vocabulary.bos])
    n_kept = len(prompt) if n_keep < 0 else min(n_keep + n_bos, len(prompt))
    return min(n_kept, services.n_ctx - _MIN_SHIFTED)


async def read_text_request(
    fields: GenerationFields,
    prompts: Sequence[Prompt | MadePrompt],
    http_request: Request,
    services: Services,
) -> GenerationRequest:
    """Return the request to continue `prompts`; raises RequestError, which names the field at fault."""
    texts = _checked(fields, len(prompts), services)
    model = services.vocabulary.model
    if (
        model.adds_bos
        and model.bos_text
        and any(_first_text(each).startswith(model.bos_text) for each in prompts)
    ):
        _say_that_bos_is_read_once(model.bos_text)
    request, _ = await _read(
        fields, (), http_request, services, TokenizerJobs.prepare_prompts, prompts, texts
    )
    return request


async def _read(
    fields: GenerationFields,
    images: Sequence[EncodedImage],
    http_request: Request,
    services: Services,
    method: Callable[Concatenate[TokenizerJobs, P], PreparedRequest],
    *arguments: P.args,
    **options: P.kwargs,
) -> tuple[GenerationRequest, PreparedRequest]:
    services.engine.wake()
    prepared = await prepare(http_request, services, method, *arguments, **options)
    if prepared.reads_control_texts:
        _say_that_control_texts_are_read()
    return generation_request(fields, prepared, services, _sender(http_request), images), prepared


def _sender(http_request: Request) -> Principal:
    sender: Principal = getattr(http_request.state, "principal", ANYONE)
    return sender


def _checked(fields: GenerationFields, n_prompts: int, services: Services) -> FieldTexts:
    """Return the texts of `fields`; raises RequestError."""
    settings, limits = services.settings, services.settings.limits
    texts = fields.texts(limits)
    fields.check()
    _check_number(n_prompts, fields.n_answers(limits.max_n), limits)
    return replace(texts, shows_prompt=settings.log_prompts or fields.shows_prompt(settings.log_level))


@functools.cache  # the log says so once
def _say_that_control_texts_are_read() -> None:
    log.warning(
        "the chat template changes the text of a message, so the text is not found in the prompt. Texts of "
        "control tokens in the message are read as control tokens"
    )


def _first_text(prompt: Prompt | MadePrompt) -> str:
    """Return the text with which a prompt begins; empty if it begins with tokens."""
    if isinstance(prompt, MadePrompt):
        return ""
    first = prompt if isinstance(prompt, str) else next(iter(prompt), "")
    return first if isinstance(first, str) else ""


@functools.lru_cache(maxsize=256)  # as above, for each tool
def _say_that_calls_are_free(reason: str) -> None:
    log.warning("%s. Therefore the arguments of this tool's calls are not checked against its schema", reason)


@functools.cache  # as above
def _say_that_bos_is_read_once(bos_text: str) -> None:
    log.warning(
        "a prompt begins with %s, which the lead adds to each prompt. It is added only once",
        bos_text,
    )


def _check_number(n_prompts: int, n: int, limits: RequestLimits) -> None:
    if n_prompts > limits.max_prompts:
        raise RequestError(
            f"prompt: {n_prompts} prompts are too many. The maximum is {limits.max_prompts} (--max-prompts)",
            "prompt",
        )
    if n_prompts * n > max(limits.max_prompts, limits.max_n):
        raise RequestError(f"n: {n} answers to each of {n_prompts} prompts are too many", "n")


def _check_lengths(prepared: PreparedRequest, services: Services) -> None:
    """Raise RequestError for a prompt that is empty, too long, or leaves no room for an answer."""
    maximum = services.settings.limits.max_prompt_tokens
    for prompt in prepared.prompts:
        if maximum and len(prompt) > maximum:
            raise ContextExceededError(len(prompt), maximum + 1, "--max-prompt-tokens")
        if not prompt:
            raise RequestError("the prompt is empty", "prompt")
        if len(prompt) >= services.n_ctx:
            raise ContextExceededError(len(prompt), services.n_ctx)


class ChatRequest(GenerationFields, ConversationFields):
    """The body of a chat completion request."""

    def shows_prompt(self, log_level: LogLevel) -> bool:
        return log_level == "debug" if self.verbose is None else self.verbose


async def read_chat_request(
    body: ChatRequest, http_request: Request, services: Services
) -> GenerationRequest:
    """Return the request to continue a conversation; raises RequestError, which names the field at fault."""
    check_tools(body, services)
    texts = replace(_checked(body, 1, services), grammar=None, json_schema=None)  # the conversation has them
    services.engine.wake()
    body, images = await with_markers(body, http_request, services)
    ready, owner = services.engine.ready, _sender(http_request).id
    # What a lead remembers must not decide about a text that is to be the same after a restart.
    is_kept = body.cache_prompt is not False and not (ready and ready.exactness.is_on)
    last = services.answers.find(owner, body.messages) if is_kept else None
    known = KnownTurn(last, has_checkpoints=ready is not None and ready.has_checkpoints)
    asked = (write_conversation(body), texts, known, rows_of(images))
    request, prepared = await _read(body, images, http_request, services, TokenizerJobs.prepare_chat, *asked)
    if not is_kept or prepared.turn is None:
        return request
    turn = prepared.turn.after(last, prepared.n_known)
    return replace(request, remember=functools.partial(services.answers.add, owner, body.messages, turn))


def as_chat(fields: dict[str, Any]) -> ChatRequest:
    """Convert the request of another API to a chat request; raises RequestError."""
    return validated(ChatRequest, fields)


def validated(kind: type[T], fields: dict[str, Any]) -> T:
    """Validate fields as a request of type `kind`; raises RequestError."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise first_invalid(error, fields) from error


def check_tools(body: ConversationFields, services: Services) -> None:
    if len(body.tools or []) > services.settings.limits.max_tools:
        raise RequestError(
            f"tools: too many. The maximum is {services.settings.limits.max_tools} (--max-tools)", "tools"
        )


async def count_prompt(body: ConversationFields, http_request: Request, services: Services) -> int:
    """Return the number of tokens in a conversation's prompt; raises RequestError."""
    body, images = await with_markers(body, http_request, services)
    conversation = write_conversation(body)
    return await prepare(http_request, services, TokenizerJobs.count_prompt, conversation, rows_of(images))


def rows_of(images: Sequence[EncodedImage]) -> Sequence[ImageRows]:
    """Return the rows of the images, which a tokenizer process puts into the prompt."""
    return [ImageRows(image.marker, image.tokens) for image in images]


async def prepare(
    http_request: Request,
    services: Services,
    method: Callable[Concatenate[TokenizerJobs, P], R],
    *arguments: P.args,
    **options: P.kwargs,
) -> R:
    """Call `method` of `TokenizerJobs` in a tokenizer process, and return its result.

    Raises RequestError, UnavailableError, and ClientGoneError if the client leaves, which stops the job.
    """
    return await cancel_on_disconnect(
        http_request, services.tokenizer.run(client_of(http_request), method, *arguments, **options)
    )
