"""A request of any of the chat APIs: its prompt, the grammar of its answer, and how the answer is parsed."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from lead.chat.constraint import OutputConstraint, grammar_for
from lead.chat.parser import ParserConfig
from lead.chat.request import ConversationFields
from lead.chat.template import Conversation
from lead.chat.tool_formats import unfinished_marker
from lead.grammar import check_grammar, check_schema, check_size, json_rule, lark_grammar
from lead.http.error_responses import first_invalid
from lead.http.generation_request import GenerationRequest, read_request
from lead.http.schema import GenerationFields
from lead.server.services import Services
from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary


class ChatRequest(GenerationFields, ConversationFields):
    """What a client posts to the chat."""


async def read_chat_request(body: ChatRequest, services: Services) -> GenerationRequest:
    """Raises RequestError naming the field at fault."""
    check_tools(body, services)
    tokens, parser, grammar = await asyncio.to_thread(_prepare, body, services)
    request = await read_request(body, [tokens], services, grammar)
    return replace(request, parser=parser, special_tokens=_special_tokens(parser, services.vocabulary))


def as_chat(fields: dict[str, Any]) -> ChatRequest:
    """The chat request that another API's request means; raises RequestError."""
    try:
        return ChatRequest.model_validate(fields)
    except ValidationError as error:
        raise first_invalid(error) from error


def check_tools(body: ConversationFields, services: Services) -> None:
    """Raise RequestError for more tools than are accepted."""
    if len(body.tools or []) > services.limits.max_tools:
        raise RequestError(f"tools: at most {services.limits.max_tools} are accepted", "tools")


def render_prompt(body: ConversationFields, services: Services) -> str:
    """The text for the model to continue; raises RequestError. It may take long: call it in a thread."""
    return services.template.render(_conversation(body, body.output_constraint(), services))


async def count_prompt(body: ConversationFields, services: Services) -> int:
    """How many tokens the model reads before it answers; raises RequestError."""

    def count() -> int:
        return len(_tokenize(render_prompt(body, services), services.vocabulary))

    return await asyncio.to_thread(count)


def _prepare(body: ChatRequest, services: Services) -> tuple[list[int], ParserConfig, str | None]:
    constraint = body.output_constraint()
    conversation = _conversation(body, constraint, services)
    prompt = services.template.render(conversation)
    parser = _parser_config(body, constraint, services, prompt)
    if parser.reasoning and conversation.continues_reasoning:
        parser = replace(parser, in_reasoning=True, continues_reasoning=True)
    if body.grammar:
        grammar = body.grammar_text(services.vocabulary, services.limits)
    else:
        may_think = parser.in_reasoning or conversation.variables.get("enable_thinking", True)
        grammar = _grammar(constraint, services, parser, may_think=may_think)
    return _tokenize(prompt, services.vocabulary), parser, grammar


def _conversation(body: ConversationFields, constraint: OutputConstraint, services: Services) -> Conversation:
    return body.conversation(services.chat, constraint, services.template.tool_format)


def _tokenize(prompt: str, vocabulary: Vocabulary) -> list[int]:
    if vocabulary.adds_bos and vocabulary.bos is not None:
        # The template may have written the BOS token that the tokenizer is about to add.
        prompt = prompt.removeprefix(
            vocabulary.piece(vocabulary.bos, special=True).decode("utf-8", "replace")
        )
    return vocabulary.tokenize(prompt, add_special=True, parse_special=True)


def _parser_config(
    body: ConversationFields, constraint: OutputConstraint, services: Services, prompt: str
) -> ParserConfig:
    template = services.template
    separate = (body.reasoning_format or services.chat.reasoning_format) != "none"
    reasoning = template.reasoning
    opened = reasoning is not None and reasoning.is_open(prompt)
    return ParserConfig(
        reasoning=reasoning if separate else None,
        in_reasoning=opened,
        tool_format=template.tool_format if constraint.tools else None,
        ignored_markers=template.ignored_markers,
        tools=frozenset(tool.function.name for tool in constraint.tools),
        one_call=not constraint.several,
        prefix=f"{reasoning.start}\n" if reasoning and opened and not separate else "",
        unfinished=unfinished_marker(prompt),
    )


def _grammar(
    constraint: OutputConstraint, services: Services, parser: ParserConfig, *, may_think: bool
) -> str | None:
    vocabulary, limits, reasoning = services.vocabulary, services.limits, services.template.reasoning

    def check(schema: object, field: str) -> Mapping[str, Any]:
        checked = check_schema(schema, limits, field)
        if constraint.tools and field != "tools":  # an error in the whole grammar would name the tools
            check_grammar(lark_grammar([json_rule("start", checked)]), vocabulary, field)
        return checked

    # Reasoning that stays in the text (`reasoning_format: none`) is only constrained where it has begun.
    thinks = may_think and (parser.in_reasoning or parser.reasoning)
    grammar = grammar_for(
        constraint,
        parser.tool_format,
        reasoning if thinks else None,
        in_reasoning=parser.in_reasoning,
        check=check,
        special_tokens=vocabulary.special_tokens,
    )
    if grammar is not None:
        field = "tools" if constraint.tools else constraint.schema_field
        check_size(grammar, limits, field)
        check_grammar(grammar, vocabulary, field)
    return grammar


def _special_tokens(parser: ParserConfig, vocabulary: Vocabulary) -> frozenset[int]:
    """Control tokens that mark calls and reasoning: the parser needs their text."""
    tokens = {
        token
        for marker in parser.markers()
        for token in vocabulary.tokenize(marker, add_special=False, parse_special=True)
        if not vocabulary.piece(token)
    }
    return frozenset(tokens - vocabulary.end_tokens)
