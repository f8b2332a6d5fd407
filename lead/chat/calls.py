"""Calls of tools, as the core asks for them. A ring plugs in what reads and writes them (`call_support`)."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from lead.chat.deltas import Delta
from lead.chat.fitting import Step
from lead.chat.markers import Window
from lead.chat.probes import Render
from lead.rings.table import RINGS
from shared.sampling.call_grammars import CallGrammars
from shared.seams import plugged

if TYPE_CHECKING:
    from lead.chat.constraint import GrammarWriter
    from lead.chat.output_format import ParserConfig, ReasoningMarkers
    from lead.chat.request import ConversationFields
    from lead.settings.limits import RequestLimits

Tools = Sequence[Mapping[str, Any]]
"""In OpenAI's format."""


class AnyCallFormat(Protocol):
    """The format of a model's tool calls: data, which is pickled with each request."""

    @property
    def around_content(self) -> tuple[str, str]:
        """The texts around JSON content, if all answers are JSON; else two empty texts."""

    @property
    def starts(self) -> tuple[str, ...]:
        """The texts with which calls begin."""

    def markers(self) -> tuple[str, ...]:
        """All texts that may contain control tokens."""


class AnyCallReader(Protocol):
    """Reads the calls of an answer, while `active`; `rejected` is content that it leaves behind then."""

    n_calls: int
    rejected: str

    @property
    def active(self) -> bool: ...

    @property
    def starts(self) -> tuple[str, ...]:
        """The texts with which calls begin."""

    @property
    def begins_with_object(self) -> bool:
        """True if an answer that begins with a JSON object may be a call."""

    def begin_answer(self) -> None:
        """An answer begins, or goes on after reasoning."""

    def begin(self, marker: str, space: str = "") -> None:
        """Read on after `marker`, which follows white space; without one, a JSON object follows."""

    def read(self) -> list[Delta] | None:
        """Read some of the window; None if more text is needed for that."""

    def finish(self, *, is_cut: bool) -> list[Delta]:
        """The remaining parts when all has been read. is_cut: the model would have gone on."""


class CallSupport(Protocol):
    """A module."""

    def derive(
        self, render: Render, unfinished: str, source: str, *, lists_tools: bool
    ) -> tuple[AnyCallFormat, bool]:
        """The format, and whether the template takes the arguments of calls as objects."""

    def instructions(self, calls: AnyCallFormat, tools: Tools, *, must_call: bool) -> str:
        """The tools in words, for templates that do not list them; else empty."""

    def steps(self, calls: AnyCallFormat) -> list[Step]:
        """Ways to bring messages into a form that a template takes."""

    def simple_tools(self, tools: Tools) -> Tools:
        """The tools, with types of arguments that all templates know."""

    def argument_types(self, parameters: object) -> Mapping[str, frozenset[str]]:
        """The JSON types of a tool's arguments by their names."""

    def reader(self, calls: AnyCallFormat, config: "ParserConfig", window: Window) -> AnyCallReader:
        """A reader of the calls in the answer in `window`."""

    def rule(self, calls: AnyCallFormat, request: "ConversationFields", writer: "GrammarWriter") -> str:
        """An expression for calls of the tools of a request; raises RequestError."""

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
        """The grammars that apply once an optional call has begun; None: nothing constrains calls.

        Also why tools have no grammar of their arguments; for one that is `strict` that is raised, as what
        `check_grammar` raises. said: with what the prompt has begun the answer.
        """


@functools.cache
def call_support() -> CallSupport | None:
    """The plugged-in support of tool calls; None without that ring: then no tools are called."""
    return cast("CallSupport | None", next(plugged(RINGS, "call_support"), None))
