"""The work of a tokenizer process: converts a request's texts to tokens, a grammar and parser settings.

Synchronous, without I/O; everything raises RequestError naming the field at fault.
"""

import contextlib
import functools
import itertools
import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from lead.chat_format.answer_memory import Turn, WrittenAnswer
from lead.chat_format.calls import call_support
from lead.chat_format.constraint import grammar_for
from lead.chat_format.control_texts import ControlTexts, RenderedPrompt, render_prompt
from lead.chat_format.output_format import ParserConfig
from lead.chat_format.request import ConversationFields
from lead.chat_format.request_parts import TemplateInput
from lead.chat_format.template import ChatTemplate
from lead.chat_format.written_answers import Range, TurnMarks, answers_in, meaning, next_turns
from lead.grammar.gbnf import gbnf_to_lark
from lead.grammar.json_rules import json_grammar
from lead.grammar.json_schema import JSON_OBJECT, check_schema
from lead.grammar.lark import check_grammar, check_size
from lead.settings.conversation import ConversationOptions
from lead.settings.limits import RequestLimits
from lead.tokenizer.jobs import (
    NO_TEXTS,
    NOTHING_KNOWN,
    FieldTexts,
    GrammarsNeededError,
    ImageRows,
    KnownTurn,
    MadePrompt,
    ModelDescription,
    PreparedRequest,
    Prompt,
    TokenizerJobs,
    read_conversation,
)
from shared.errors import RequestError
from shared.image_span import without_images
from shared.llama import library
from shared.llama.vocabulary import Vocabulary
from shared.protocol import VocabularyId
from shared.sampling.call_grammars import CallGrammars
from shared.slot_cache import common_prefix_length

_MIN_TOKENS_BEFORE = 64
"""A shorter beginning is decoded as quickly as a checkpoint of it is made."""
_MIN_TOKENS_BETWEEN = 32
"""The minimum distance between cuts: of closer cuts, only the first is used."""


class RequestPreparer(TokenizerJobs):
    """Converts requests to tokens, grammars and parser settings, in a tokenizer process."""

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
        """problem: the reason why the template is not the model's own. indexes_grammars: index the vocabulary
        for grammars when needed; otherwise jobs raise GrammarsNeededError.
        """
        self._vocabulary = vocabulary
        self._template = template
        self._chat = chat
        self._limits = limits
        self._problem = problem
        self._indexes_grammars = indexes_grammars
        self._control_texts = ControlTexts(vocabulary.special_finder)
        self._end_texts = [
            each.text for each in vocabulary.special_finder.control if vocabulary.is_end(each.id)
        ]

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

    def prepare_chat(
        self,
        conversation: bytes,
        texts: FieldTexts = NO_TEXTS,
        known: KnownTurn = NOTHING_KNOWN,
        images: Sequence[ImageRows] = (),
    ) -> PreparedRequest:
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
        # The model's earlier answers keep their own tokens, so that the cache covers them.
        answers, n_known = self._answers(body, given, prompt, known.last)
        tokens = PromptTokens(prompt, answers, self._vocabulary, images)
        request = PreparedRequest(
            [tokens.all],
            grammar,
            calls,
            problems,
            cuts=self._cuts(given, prompt.text, tokens) if known.has_checkpoints else (),
            parser=parser,
            reads_control_texts=not prompt.known,
            turn=Turn.begin(prompt.text, answers[n_known:], *tokens.space),
            n_known=n_known,
            images=tokens.images,
        )
        return self._with_texts(request, texts)

    def count_prompt(self, conversation: bytes, images: Sequence[ImageRows] = ()) -> int:
        prompt = self._render(read_conversation(conversation))
        return len(PromptTokens(prompt, (), self._vocabulary, images).all)

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
        shown = map(self._text_of, request.prompts) if texts.shows_prompt else ()
        return replace(
            request,
            prompt_texts=list(shown),
            prediction=self._tokenize_plain(texts.prediction),
            biased={text: self._tokenize_plain(text).tolist() for text in texts.biased},
        )

    def _text_of(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without the rows of images, which have none."""
        return self._vocabulary.detokenize(without_images(tokens))

    def _render(self, body: ConversationFields) -> RenderedPrompt:
        return self._render_prompt(self._conversation(body))

    def _render_prompt(self, conversation: TemplateInput) -> RenderedPrompt:
        if self._chat.parse_special:
            return RenderedPrompt(self._template.render(conversation))
        return render_prompt(self._template, conversation, self._control_texts)

    def _conversation(self, body: ConversationFields) -> TemplateInput:
        return body.conversation(self._chat, self._template.tool_format)

    # Earlier and later turns

    def _answers(
        self, body: ConversationFields, given: TemplateInput, prompt: RenderedPrompt, last: Turn | None
    ) -> tuple[tuple[WrittenAnswer, ...], int]:
        """Return the answers in a prompt; see `answers_in`."""
        vocabulary = self._vocabulary
        written = last.tokens if last else array("i")
        if has_ended := bool(written) and vocabulary.is_end(written[-1]):
            written = written[:-1]
            last = replace(last, tokens=written) if last else None

        def means_same(parts: Sequence[Range]) -> bool:
            before = prompt.text[: parts[0][0]]
            config = replace(self._parser_config(body, given, before), one_call=False)
            meant = meaning(config, self._pieces(config, written))
            if config.reasoning and not (has_ended or meant.content or meant.calls):
                return False  # its reasoning goes on: the template closes it
            rendered = array("i")
            for part in itertools.starmap(prompt.part, parts):
                rendered += vocabulary.encode(
                    part.text, add_special=False, parse_special=True, breaks=part.breaks
                )
            return meaning(config, self._pieces(config, rendered)) == meant

        calls = self._template.tool_format if body.usable_tools else None
        starts = calls.starts if calls else ()
        return answers_in(prompt, last, TurnMarks(self._end_texts, starts), means_same)

    def _pieces(self, config: ParserConfig, tokens: Sequence[int]) -> str:
        """Return the text of tokens for the parser."""
        pieces = (self._vocabulary.piece(each, special=each in config.special_tokens) for each in tokens)
        return b"".join(pieces).decode("utf-8", "replace")

    def _cuts(self, given: TemplateInput, text: str, tokens: "PromptTokens") -> tuple[int, ...]:
        """Return the lengths, in tokens, of the prompt's beginnings that other questions and the next turns
        may share.
        """
        last = "\n".join(given.messages[-1].parts) if given.messages[-1].role != "tool" else ""
        shared = {text.rfind(last) if last else 0}
        for messages in next_turns(given, reasons=self._template.reasoning is not None):
            with contextlib.suppress(RequestError):
                later = self._template.render(replace(given, messages=messages, continues=False))
                shared.add(common_prefix_length(text, later))
        cuts = [0]
        for n in sorted(tokens.n_before(at) for at in shared if at > 0):
            if n >= cuts[-1] + (_MIN_TOKENS_BETWEEN if cuts[-1] else _MIN_TOKENS_BEFORE):
                cuts.append(n)
        return tuple(cuts[1:])

    # Tokens

    def _tokenize_parts(self, prompt: Prompt | MadePrompt) -> "array[int]":
        """Tokenize a prompt in parts.

        The tokens that the model wants around a prompt (BOS) are added if the prompt begins with text.
        """
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
        """Return the control tokens that mark calls and reasoning: the parser needs their text."""
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
        template, answers = self._template, self._template.answers
        separate = (body.reasoning_format or self._chat.reasoning_format) != "none"
        reasoning = answers.reasoning
        opened = reasoning is not None and reasoning.is_open(prompt)
        continues = separate and reasoning is not None and conversation.continues_reasoning(reasoning)
        support = call_support()
        types = support.argument_types if support else lambda _parameters: {}
        parser = ParserConfig(
            reasoning=reasoning if separate else None,
            in_reasoning=opened or continues,
            continues_reasoning=continues,
            tool_format=template.tool_format if body.usable_tools else None,
            ignored_markers=answers.ignored,
            tools=frozenset(tool.function.name for tool in body.usable_tools),
            types={tool.function.name: types(tool.function.parameters) for tool in body.usable_tools},
            one_call=body.one_call,
            used_ids=frozenset(
                call.id for message in conversation.messages for call in message.tool_calls or () if call.id
            ),
            prefix=reasoning.opening if reasoning and opened and not separate else "",
            unfinished=answers.unfinished if prompt.endswith(answers.unfinished) else "",
        )
        return replace(parser, special_tokens=self._special_tokens(parser))

    def _grammar_of(self, texts: FieldTexts) -> str | None:
        """Return the grammar that a client sent itself, in one of two forms."""
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
        """Return the grammar of an answer in the form that the client asked for."""

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
        """Return the grammars of calls for an answer that need not call tools, and the tools without a
        grammar.
        """
        reasoning, calls, support = self._template.reasoning, parser.tool_format, call_support()
        if calls is None or support is None:
            return None, []
        return support.grammars(
            calls,
            body,
            reasoning,
            said=reasoning.start if reasoning and parser.in_reasoning else parser.unfinished,
            limits=self._limits,
            special_tokens=self._vocabulary.special_tokens,
            check_grammar=functools.partial(self._check_grammar, param="tools"),
        )


def _body(name: str, text: str) -> bytes:
    return b'{"%b":%b}' % (name.encode(), json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))


class PromptTokens:
    """Tokenizes a prompt with images and earlier answers, whose tokens stay as the model wrote them."""

    def __init__(
        self,
        prompt: RenderedPrompt,
        answers: Sequence[WrittenAnswer],
        vocabulary: Vocabulary,
        images: Sequence[ImageRows] = (),
    ) -> None:
        found = {at: i for i, at in _places(prompt.text, images)}
        given = [(each.start, each.end, each.tokens) for each in answers]
        given += [(at, at + len(images[i].marker), images[i].tokens) for at, i in found.items()]
        given.sort(key=itemgetter(0))
        self._numbers = [found.get(start) for start, _, _ in given]
        self._text = prompt.text
        self._vocabulary = vocabulary
        self._ends = [0, *(end for start, end, _ in given for end in (start, end)), len(prompt.text)]
        self._parts = vocabulary.encode_parts(prompt.text, given, prompt.breaks)

    @property
    def all(self) -> "array[int]":
        return sum(self._parts, array("i"))

    @property
    def images(self) -> list[tuple[int, int]]:
        """(position of the first token, index) of each image."""
        lengths = list(itertools.accumulate(map(len, self._parts)))
        return [(lengths[2 * n], i) for n, i in enumerate(self._numbers) if i is not None]

    def n_before(self, at: int) -> int:
        """Return the number of tokens that end before this position, minus one token whose end may depend on
        later text.

        Characters that the vocabulary may add (a blank after each control token) make the number too small,
        never too large.
        """
        n_added = len(self._vocabulary.detokenize(self._plain("x"))) - 1
        index = max(0, bisect_left(self._ends, at) - 1)
        n_before, tokens = sum(map(len, self._parts[:index])), self._parts[index]
        n_bytes = len(self._text[at : self._ends[index + 1]].encode("utf-8", "replace"))
        n = 0 if index % 2 else len(tokens)
        while n and n_bytes > 0:
            n -= 1
            n_bytes -= len(self._vocabulary.piece(tokens[n], special=True))
            n_bytes += 0 if self._vocabulary.piece(tokens[n]) else n_added
        return n_before + n - 1

    @property
    def space(self) -> tuple["array[int]", int]:
        """The tokens of the white space at the end, and its length; empty if a token has other text, too."""
        vocabulary, tokens = self._vocabulary, self.all
        space = self._text[len(self._text.rstrip()) :]
        n = len(tokens) - len(self._plain(space))
        start = next((i + 1 for i in range(n - 1, -1, -1) if not self._has_text(tokens[i])), 0)
        before = self._plain(vocabulary.detokenize(tokens[start:n]))
        is_apart = before == tokens[start:n] and vocabulary.detokenize(tokens[n:]) == space
        return (tokens[n:], len(space)) if is_apart else (array("i"), 0)

    def _has_text(self, token: int) -> bool:
        return token < self._vocabulary.n_tokens and bool(self._vocabulary.piece(token))

    def _plain(self, text: str) -> "array[int]":
        return self._vocabulary.encode(text, add_special=False, parse_special=False)


def _places(text: str, images: Sequence[ImageRows]) -> Iterator[tuple[int, int]]:
    """Yield the number of each image, and where its marker is; one image may be in a text several times."""
    for i, image in enumerate(images):
        at = text.find(image.marker)
        while at >= 0:
            yield i, at
            at = text.find(image.marker, at + len(image.marker))
