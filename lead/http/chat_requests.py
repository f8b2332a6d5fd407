"""One turn of a conversation, whatever API it came by: the job, and how to read what the model writes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from lead.chat.constraint import constrain
from lead.chat.deltas import AssistantMessage, Delta
from lead.chat.parser import OutputParser, ParserConfig
from lead.chat.request import ConversationFields
from lead.chat.tool_formats import GENERIC
from lead.generation.completions import Outcome, Piece
from lead.grammar import check_grammar, schema_to_gbnf
from lead.http.answers import Answer, Job
from lead.http.errors import first_invalid
from lead.http.schema import GenerationFields
from lead.server.services import Services
from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary


class ChatRequest(GenerationFields, ConversationFields):
    """What a client posts to the chat."""


@dataclass(frozen=True, slots=True)
class End:
    """How an answer ended."""

    reason: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Turn:
    """What to generate and how to read it."""

    job: Job
    config: ParserConfig

    @classmethod
    async def read(cls, body: ChatRequest, services: Services) -> "Turn":
        """Raises RequestError naming the field at fault."""
        check_tools(body, services)
        tokens, config, grammar = await asyncio.to_thread(_prepare, body, services)
        constrained = body.model_copy(
            update={"grammar": grammar, "json_schema": None, "response_format": None}
        )
        job = await Job.read(constrained, [tokens], services)
        return cls(replace(job, shown=_shown(config, services.vocabulary)), config)

    def reader(self) -> OutputParser:
        """Reads one of the answers."""
        return OutputParser(self.config)

    def read_whole(self, answer: Answer) -> tuple[list[Delta], End]:
        """What a whole answer consists of, and how it ended."""
        assert answer.outcome
        reader = self.reader()
        deltas = [*reader.push(answer.text), *reader.finish()]
        return deltas, End(finish_reason(reader, answer.outcome), answer.outcome)

    def said(self, answer: Answer) -> tuple[AssistantMessage, End]:
        """A whole answer, and how it ended."""
        deltas, end = self.read_whole(answer)
        said = AssistantMessage()
        said.add(deltas)
        return said, end

    async def follow(self, services: Services) -> AsyncGenerator[list[Delta] | End]:
        """The one answer as it becomes known. Closing it early cancels it."""
        reader = self.reader()
        async with contextlib.aclosing(self.job.run(services)) as items:
            async for _, item in items:
                if isinstance(item, Piece):
                    if deltas := reader.push(item.text):
                        yield deltas
                elif isinstance(item, Outcome):
                    if deltas := reader.finish():
                        yield deltas
                    yield End(finish_reason(reader, item), item)


def as_chat(fields: dict[str, Any]) -> ChatRequest:
    """The chat request that another API's request means; raises RequestError."""
    try:
        return ChatRequest.model_validate(fields)
    except ValidationError as error:
        raise first_invalid(error) from error


def finish_reason(reader: OutputParser, outcome: Outcome) -> str:
    """OpenAI's."""
    return "tool_calls" if reader.n_calls and outcome.reason == "stop" else outcome.reason


def check_tools(body: ConversationFields, services: Services) -> None:
    """Raise RequestError for more tools than are taken."""
    if len(body.tools or []) > services.bounds.max_tools:
        raise RequestError(f"tools: at most {services.bounds.max_tools} are taken", "tools")


def render_prompt(body: ConversationFields, services: Services) -> str:
    """The text that the model is to continue; raises RequestError. It may take long: call it in a thread."""
    template = services.template
    return template.render(body.conversation(services.chat, template.tool_format))


def tokenize_prompt(text: str, vocabulary: Vocabulary) -> list[int]:
    """Tokens of a rendered conversation."""
    if vocabulary.adds_bos and vocabulary.bos is not None:
        # The template may have written the BOS token that the tokenizer is about to add.
        text = text.removeprefix(vocabulary.piece(vocabulary.bos, special=True).decode("utf-8", "replace"))
    return vocabulary.tokenize(text, add_special=True, parse_special=True)


async def count_prompt(body: ConversationFields, services: Services) -> int:
    """How many tokens the model reads before it answers; raises RequestError."""

    def count() -> int:
        return len(tokenize_prompt(render_prompt(body, services), services.vocabulary))

    return await asyncio.to_thread(count)


def _prepare(body: ChatRequest, services: Services) -> tuple[list[int], ParserConfig, str | None]:
    prompt = render_prompt(body, services)
    config = _parser_config(body, services, prompt)
    grammar = _grammar(body, services, config)
    return tokenize_prompt(prompt, services.vocabulary), config, grammar


def _parser_config(body: ConversationFields, services: Services, prompt: str) -> ParserConfig:
    template, demand = services.template, body.demand()
    separate = (body.reasoning_format or services.chat.reasoning_format) != "none"
    thinking = template.reasoning
    opened = thinking is not None and thinking.is_open(prompt)
    return ParserConfig(
        reasoning=thinking if separate else None,
        in_reasoning=opened,
        tool_format=template.tool_format if demand.tools else None,
        ignored_markers=template.ignored_markers,
        tools=frozenset(tool.function.name for tool in demand.tools),
        one_call=not demand.several,
        prefix=f"{thinking.start}\n" if thinking and opened and not separate else "",
    )


def _grammar(body: ChatRequest, services: Services, config: ParserConfig) -> str | None:
    demand, bounds, template = body.demand(), services.bounds, services.template
    if body.grammar:
        return body.grammar

    def convert(schema: object, field: str) -> str:
        return schema_to_gbnf(schema, bounds, field)

    may_think = config.in_reasoning or (
        config.reasoning and _variables(body, services).get("enable_thinking", True)
    )
    grammar = constrain(
        demand,
        config.tool_format,
        template.reasoning if may_think else None,
        opened=config.in_reasoning,
        convert=convert,
    )
    if grammar is not None:
        field = "tools" if demand.tools else demand.schema_field
        check_grammar(grammar, bounds, field)
    return grammar


def _variables(body: ConversationFields, services: Services) -> dict[str, Any]:
    return dict(body.conversation(services.chat, GENERIC).variables)


def _shown(config: ParserConfig, vocabulary: Vocabulary) -> frozenset[int]:
    """Control tokens that are marks: without their text nobody could tell calls and reasoning apart."""
    marks = set(config.ignored_markers)
    marks |= {config.reasoning.start, config.reasoning.end} if config.reasoning else set()
    marks |= set(config.tool_format.marks()) if config.tool_format else set()
    tokens = {
        token
        for mark in marks
        for token in vocabulary.tokenize(mark, add_special=False, parse_special=True)
        if not vocabulary.piece(token)
    }
    return frozenset(tokens - vocabulary.end_tokens)
