"""What a tokenizer process does: from a request's texts to tokens, a grammar and a parser.

Synchronous, without I/O; all of it raises RequestError naming the field at fault.
"""

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lead.chat.constraint import call_grammars, grammar_for
from lead.chat.control_texts import ControlTexts, RenderedPrompt, render_prompt
from lead.chat.output_format import ParserConfig, unfinished_marker
from lead.chat.request import ConversationFields
from lead.chat.request_parts import TemplateInput
from lead.chat.template import ChatTemplate
from lead.grammar.gbnf import gbnf_to_lark
from lead.grammar.json_rules import json_grammar
from lead.grammar.json_schema import JSON_OBJECT, check_schema
from lead.grammar.lark import check_grammar, check_size
from lead.settings.conversation import ConversationOptions
from lead.settings.limits import RequestLimits
from lead.tokenizer.jobs import (
    NO_TEXTS,
    FieldTexts,
    GrammarsNeededError,
    Jobs,
    MadePrompt,
    ModelDescription,
    PreparedRequest,
    Prompt,
    read_conversation,
)
from lead.tools.argument_types import argument_types
from shared.errors import RequestError
from shared.llama import library
from shared.llama.vocabulary import Vocabulary
from shared.protocol import VocabularyId
from shared.sampling.call_grammars import CallGrammars

_MIN_TOKENS_BEFORE = 64
"""A shorter beginning is decoded as quickly as a checkpoint of it is made."""


class Preparation(Jobs):
    """Does the jobs, in a tokenizer process."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        template: ChatTemplate,
        chat: ConversationOptions,
        limits: RequestLimits,
        *,
        problem: str | None = None,
        indexes_grammars: bool = True,
    ) -> None:
        """problem: why the template is not the model's own.

        indexes_grammars: otherwise jobs raise GrammarsNeededError where that is still to be done.
        """
        self._vocabulary = vocabulary
        self._template = template
        self._chat = chat
        self._limits = limits
        self._problem = problem
        self._indexes_grammars = indexes_grammars
        self._control_texts = ControlTexts(vocabulary.special)

    # Jobs

    def describe(self) -> ModelDescription:
        vocabulary = self._vocabulary
        return ModelDescription(
            info=vocabulary.info,
            bos=vocabulary.bos,
            adds_bos=vocabulary.adds_bos,
            bos_text=vocabulary.bos_text,
            eos_text=vocabulary.eos_text,
            template=self._template.source,
            problem=self._problem,
            reasons=self._template.reasoning is not None,
            build=library.version(),
            cpu_kernel=library.kernel(),
        )

    def identify(self) -> VocabularyId:
        return self._vocabulary.identify()

    def prepare_prompts(
        self, prompts: Sequence[Prompt | MadePrompt], texts: FieldTexts = NO_TEXTS
    ) -> PreparedRequest:
        tokens = [self._tokenize_parts(prompt) for prompt in prompts]
        return self._with_texts(PreparedRequest(tokens, self._grammar_of(texts)), texts)

    def prepare_chat(self, conversation: bytes, texts: FieldTexts = NO_TEXTS) -> PreparedRequest:
        body = read_conversation(conversation)
        given = self._conversation(body)
        prompt = self._render_prompt(given)
        parser = self._parser_config(body, given, prompt.text)
        calls: CallGrammars | None = None
        problems: list[str] = []
        if body.grammar:
            grammar = self._grammar_of(FieldTexts(grammar=body.grammar))
        else:
            may_think = parser.in_reasoning or given.variables.get("enable_thinking", True)
            grammar = self._constrain(body, parser, may_think=bool(may_think))
            if grammar is None:
                calls, problems = self._constrain_calls(body, parser)
        tokens = self._tokenize_prompt(prompt)
        last = "\n".join(given.messages[-1].parts)
        request = PreparedRequest(
            [tokens],
            grammar,
            calls,
            problems,
            n_before_last=tokens_before(last, prompt.text, tokens, self._vocabulary),
            parser=parser,
            reads_control_texts=not prompt.known,
        )
        return self._with_texts(request, texts)

    def count_prompt(self, conversation: bytes) -> int:
        return len(self._tokenize_prompt(self._render(read_conversation(conversation))))

    def render_prompt(self, conversation: bytes) -> bytes:
        return _body("prompt", self._render(read_conversation(conversation)).text)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool, with_pieces: bool) -> bytes:
        # Written piece by piece: objects for a million tokens would take hundreds of megabytes.
        tokens = self._vocabulary.encode(text, add_special=add_special, parse_special=parse_special)
        shown = {token: self._show(token) if with_pieces else b"%d" % token for token in set(tokens)}
        return b'{"tokens":[%b]}' % b",".join(shown[token] for token in tokens)

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        try:
            return _body("content", self._vocabulary.detokenize(tokens))
        except ValueError as error:
            raise RequestError(f"tokens: {error}", "tokens") from error

    # Prompts

    def _with_texts(self, request: PreparedRequest, texts: FieldTexts) -> PreparedRequest:
        shown = map(self._vocabulary.detokenize, request.prompts) if texts.shows_prompt else ()
        return replace(
            request,
            prompt_texts=list(shown),
            prediction=self._tokenize_plain(texts.prediction),
            biased={text: self._tokenize_plain(text).tolist() for text in texts.biased},
        )

    def _render(self, body: ConversationFields) -> RenderedPrompt:
        return self._render_prompt(self._conversation(body))

    def _render_prompt(self, conversation: TemplateInput) -> RenderedPrompt:
        if self._chat.parse_special:
            return RenderedPrompt(self._template.render(conversation))
        return render_prompt(self._template, conversation, self._control_texts)

    def _conversation(self, body: ConversationFields) -> TemplateInput:
        return body.conversation(self._chat, self._template.tool_format)

    # Tokens

    def _tokenize_prompt(self, prompt: RenderedPrompt) -> "array[int]":
        return self._vocabulary.encode(
            prompt.text, add_special=True, parse_special=True, breaks=prompt.breaks
        )

    def _tokenize_parts(self, prompt: Prompt | MadePrompt) -> "array[int]":
        """What the model wants around a prompt (BOS) is added where it begins with text."""
        if isinstance(prompt, MadePrompt):
            return prompt.tokens(self._vocabulary)
        tokens = array("i")
        for i, part in enumerate([prompt] if isinstance(prompt, str) else prompt):
            if isinstance(part, str):
                tokens += self._vocabulary.encode(part, add_special=i == 0, parse_special=True)
                continue
            try:
                tokens.append(self._vocabulary.check(part))
            except ValueError as error:
                raise RequestError(f"prompt: {error}", "prompt") from error
        return tokens

    def _tokenize_plain(self, text: str) -> "array[int]":
        return self._vocabulary.encode(text, add_special=False, parse_special=False)

    def _show(self, token: int) -> bytes:
        data = self._vocabulary.piece(token, special=True)
        try:
            piece: str | list[int] = data.decode()
        except UnicodeDecodeError:
            piece = list(data)
        shown = {"id": token, "piece": piece}
        return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode()

    def _special_tokens(self, parser: ParserConfig) -> frozenset[int]:
        """Control tokens that mark calls and reasoning: the parser needs their text."""
        tokens = {
            token
            for marker in parser.markers()
            for token in self._vocabulary.tokenize(marker, add_special=False, parse_special=True)
            if not self._vocabulary.piece(token)
        }
        return frozenset(token for token in tokens if not self._vocabulary.is_end(token))

    # Parser and grammar

    def _parser_config(
        self,
        body: ConversationFields,
        conversation: TemplateInput,
        prompt: str,
    ) -> ParserConfig:
        template = self._template
        separate = (body.reasoning_format or self._chat.reasoning_format) != "none"
        reasoning = template.reasoning
        opened = reasoning is not None and reasoning.is_open(prompt)
        continues = separate and reasoning is not None and conversation.continues_reasoning
        parser = ParserConfig(
            reasoning=reasoning if separate else None,
            in_reasoning=opened or continues,
            continues_reasoning=continues,
            tool_format=template.tool_format if body.usable_tools else None,
            ignored_markers=template.ignored_markers,
            tools=frozenset(tool.function.name for tool in body.usable_tools),
            types={
                tool.function.name: argument_types(tool.function.parameters) for tool in body.usable_tools
            },
            one_call=body.one_call,
            used_ids=frozenset(
                call.id for message in conversation.messages for call in message.tool_calls or () if call.id
            ),
            prefix=f"{reasoning.start}\n" if reasoning and opened and not separate else "",
            unfinished=unfinished_marker(prompt),
        )
        return replace(parser, special_tokens=self._special_tokens(parser))

    def _grammar_of(self, texts: FieldTexts) -> str | None:
        """The grammar that a client sent itself, in one of two forms."""
        if texts.grammar and texts.json_schema is not None:
            raise RequestError("grammar: cannot be combined with json_schema", "grammar")
        if texts.json_schema is not None:
            schema = check_schema(texts.json_schema or JSON_OBJECT, self._limits, "json_schema")
            grammar, param = json_grammar(schema), "json_schema"
            check_size(grammar, self._limits, param)
        elif texts.grammar:
            grammar = gbnf_to_lark(texts.grammar, self._vocabulary.special_tokens.get, self._limits)
            param = "grammar"
        else:
            return None
        self._check_grammar(grammar, param)
        return grammar

    def _check_grammar(self, grammar: str, param: str) -> None:
        from shared.sampling.grammar import is_prepared  # noqa: PLC0415 - the front needs no llguidance

        if not self._indexes_grammars and not is_prepared(self._vocabulary):
            raise GrammarsNeededError
        check_grammar(grammar, self._vocabulary, param)

    def _constrain(self, body: ConversationFields, parser: ParserConfig, *, may_think: bool) -> str | None:
        """The grammar of an answer in the form that the client asked for."""

        def check(schema: object, field: str) -> Mapping[str, Any]:
            checked = check_schema(schema, self._limits, field)
            if body.usable_tools and field != "tools":  # an error in the whole grammar would name the tools
                self._check_grammar(json_grammar(checked), field)
            return checked

        # Reasoning that stays in the text (`reasoning_format: none`) is only constrained where it has begun.
        thinks = may_think and (parser.in_reasoning or parser.reasoning)
        grammar = grammar_for(
            body,
            parser.tool_format,
            self._template.reasoning if thinks else None,
            in_reasoning=parser.in_reasoning,
            check=check,
            special_tokens=self._vocabulary.special_tokens,
        )
        if grammar is not None:
            field = "tools" if body.usable_tools else body.schema_field
            check_size(grammar, self._limits, field)
            self._check_grammar(grammar, field)
        return grammar

    def _constrain_calls(
        self, body: ConversationFields, parser: ParserConfig
    ) -> tuple[CallGrammars | None, list[str]]:
        """The grammars of calls in an answer that may also have none, and what tools have none."""
        reasoning, calls = self._template.reasoning, parser.tool_format
        if calls is None:
            return None, []
        grammars, problems = call_grammars(
            body,
            calls,
            reasoning,
            said=reasoning.start if reasoning and parser.in_reasoning else parser.unfinished,
            limits=self._limits,
            special_tokens=self._vocabulary.special_tokens,
        )
        for tool in body.usable_tools:
            if grammars and tool.function.strict:
                self._check_grammar(grammars.grammars[calls.written_name(tool.function.name)], "tools")
        return grammars, problems


def _body(name: str, text: str) -> bytes:
    return b'{"%b":%b}' % (name.encode(), json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))


def tokens_before(content: str, prompt: str, tokens: Sequence[int], vocabulary: Vocabulary) -> int:
    """The number of `tokens` of `prompt` that end before the last occurrence of `content`; 0 if few or none.

    Up to its last message a prompt is the same for other questions to the same assistant. What the
    vocabulary adds (BOS, a blank) makes the number too small, never too large.
    """
    at = prompt.rfind(content) if content else -1
    if at <= 0:
        return 0
    n_bytes = len(prompt[:at].encode("utf-8", "replace"))
    n_tokens = 0
    for token in tokens:
        n_bytes -= len(vocabulary.piece(token, special=True))
        if n_bytes < 0:
            break
        n_tokens += 1
    return n_tokens if n_tokens >= _MIN_TOKENS_BEFORE else 0
