"""The interface for tool calls. A ring plugs in the code that reads and writes calls (`call_support`)."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from lead.chat_format.deltas import Delta
from lead.chat_format.fitting import Step
from lead.chat_format.markers import Window
from lead.chat_format.probes import Render
from lead.rings.table import RINGS
from shared.sampling.call_grammars import CallGrammars
from shared.seams import plugged

if TYPE_CHECKING:
    from lead.chat_format.constraint import GrammarWriter
    from lead.chat_format.output_format import ParserConfig, ReasoningMarkers
    from lead.chat_format.request import ConversationFields
    from lead.settings.limits import RequestLimits

Tools = Sequence[Mapping[str, Any]]
"""Descriptions of tools in OpenAI's format."""


class AnyCallFormat(Protocol):
    """The format of a model's tool calls: plain data, which is pickled with each request."""

    @property
    def around_content(self) -> tuple[str, str]:
        """The texts before and after JSON content in a format where every answer is JSON; else two empty
        texts.
        """

    @property
    def starts(self) -> tuple[str, ...]:
        """The texts that may begin a call."""

    def markers(self) -> tuple[str, ...]:
        """Return all texts that may contain control tokens."""


class AnyCallReader(Protocol):
    """Reads tool calls in an answer while it is `active`.

    rejected: once it is inactive, the text that began like a call but is content.
    """

    n_calls: int
    rejected: str

    @property
    def active(self) -> bool: ...

    @property
    def starts(self) -> tuple[str, ...]:
        """The texts that may begin a call."""

    @property
    def begins_with_object(self) -> bool:
        """True if an answer that begins with a JSON object may be a call."""

    def begin_answer(self) -> None:
        """Reset at the beginning of an answer, or after its reasoning."""

    def begin(self, marker: str, space: str = "") -> None:
        """Start reading a call after `marker`; `space` is the white space before it.

        An empty marker: the call begins with a JSON object.
        """

    def read(self) -> list[Delta] | None:
        """Read some of the window's text, and return its deltas; None if more text is needed."""

    def finish(self, *, is_cut: bool) -> list[Delta]:
        """Return the remaining deltas at the end of the text. is_cut: the model would have continued."""


class CallSupport(Protocol):
    """The interface of the module that a ring plugs in."""

    def derive(
        self, render: Render, unfinished: str, source: str, *, lists_tools: bool
    ) -> tuple[AnyCallFormat, bool]:
        """Return the format of calls, and whether the template takes their arguments as objects (else as JSON
        text).

        unfinished: text at the end of prompts that is part of the answer. source: the template's source.
        lists_tools: the template lists the tools.
        """

    def instructions(self, calls: AnyCallFormat, tools: Tools, *, must_call: bool) -> str:
        """Return a description of the tools for templates that do not list them; else empty."""

    def steps(self, calls: AnyCallFormat) -> list[Step]:
        """Return the conversions that bring messages with calls into a form that a template accepts."""

    def simple_tools(self, tools: Tools) -> Tools:
        """Return the tools with simplified arguments, of types that all templates know."""

    def argument_types(self, parameters: object) -> Mapping[str, frozenset[str]]:
        """Return the JSON types of a tool's arguments by their names."""

    def reader(self, calls: AnyCallFormat, config: "ParserConfig", window: Window) -> AnyCallReader:
        """Return a reader of the calls in the answer in `window`."""

    def rule(self, calls: AnyCallFormat, request: "ConversationFields", writer: "GrammarWriter") -> str:
        """Return a grammar expression for one or more calls of a request's tools; raises RequestError."""

    def grammars(
        self,
        calls: AnyCallFormat,
        request: "ConversationFields",
        reasoning: "ReasoningMarkers | None",
        *,
        said: str,
        limits: "RequestLimits",
        special_tokens: Mapping[str, int],
        check_grammar: Callable[[str], None],
    ) -> tuple[CallGrammars | None, list[str]]:
        """Return the grammars of optional calls (None: calls are not constrained), and warnings.

        A grammar applies once its call has begun. A warning says why a tool's arguments have no grammar; a
        `strict` tool without a grammar raises RequestError. Raises the errors of `check_grammar`. said: the
        beginning of the answer that is part of the prompt.
        """


@functools.cache
def call_support() -> CallSupport | None:
    """Return the plugged-in support for tool calls; None: the ring is missing, and no tools can be called."""
    return cast("CallSupport | None", next(plugged(RINGS, "call_support"), None))
