"""Runs chat templates, and finds out what they support.

Templates are untrusted Jinja, so they run in a sandbox with limits.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

import jinja2
import jinja2.meta
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment

from shared.errors import ConfigError
from shared.llama import builtin_templates

CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""The template that llama-server uses for a model without a template."""

MAX_CHARACTERS = 1 << 26
"""The longest text that a template may write, more than any context holds; templates may repeat messages."""
MAX_SECONDS = 20.0


class TemplateError(Exception):
    """A template failed, or refused the messages."""


class JinjaTemplate:
    """A Jinja template with the functions that Hugging Face's transformers provides."""

    def __init__(self, source: str, now: Callable[[], datetime] = datetime.now) -> None:
        """Compile the template; raises ConfigError if `source` is not Jinja."""
        self.source = source
        environment = SandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag]
        )
        environment.filters["tojson"] = _to_json  # Jinja's own escapes HTML
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda layout: now().astimezone().strftime(layout)
        try:
            self.variables = frozenset(jinja2.meta.find_undeclared_variables(environment.parse(source)))
            self._template = environment.from_string(source)
        except Exception as error:  # Jinja compiles the source, and computes its constant expressions
            reason = "it needs too much memory" if isinstance(error, MemoryError) else error
            raise ConfigError(f"the chat template is not valid Jinja: {reason}") from error

    def run(self, variables: Mapping[str, Any]) -> str:
        """Render the text; raises TemplateError."""
        try:
            return _join_within_limits(self._template.generate(variables))
        except MemoryError as error:
            raise TemplateError("it needs too much memory") from error
        except Exception as error:  # an untrusted template may fail in any way
            raise TemplateError(str(error)) from error


class BuiltinTemplate:
    """A built-in template of llama.cpp, which supports only roles and contents."""

    variables = frozenset({"messages", "add_generation_prompt"})

    def __init__(self, name: str) -> None:
        """name: one of `builtin_templates.names()`."""
        self.source = name

    def run(self, variables: Mapping[str, Any]) -> str:
        """Render the text; raises TemplateError."""
        messages = [(message["role"], message["content"]) for message in variables["messages"]]
        try:
            return builtin_templates.apply(
                self.source, messages, add_generation_prompt=variables["add_generation_prompt"]
            )
        except (ValueError, AttributeError) as error:  # AttributeError: a content is a list of parts
            raise TemplateError(str(error)) from error


Template = JinjaTemplate | BuiltinTemplate


def load_template(source: str | None) -> Template:
    """Load a template from Jinja source or by the name of a built-in one; None: ChatML. Raises
    ConfigError.
    """
    if not source:
        return JinjaTemplate(CHATML)
    if source.strip() in builtin_templates.names():
        return BuiltinTemplate(source.strip())
    return JinjaTemplate(source)


def date_variables() -> dict[str, str]:
    """Return variables that some templates (Firefunction, Functionary) use in place of `strftime_now`.

    The time is rounded down to the hour: the cache would be useless for prompts that change every second.
    """
    return {
        "date_string": datetime.now().astimezone().strftime("%d %b %Y"),
        "datetime": datetime.now(UTC).strftime("%b %d %Y %H:00:00 GMT"),
    }


class _GenerationTag(Extension):
    """The tag `{% generation %}`, which marks the assistant's text for training. It is ignored here."""

    tags = {"generation"}  # noqa: RUF012 - declared by Jinja without ClassVar

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _join_within_limits(pieces: Iterable[str]) -> str:
    """Return the pieces as one text; raises TemplateError if a template writes too much or takes too long."""
    deadline = time.monotonic() + MAX_SECONDS
    kept, n_characters = [], 0
    for piece in pieces:
        kept.append(piece)
        n_characters += len(piece)
        if n_characters > MAX_CHARACTERS:
            raise jinja2.TemplateError(f"it writes more than {MAX_CHARACTERS} characters")
        if time.monotonic() > deadline:
            raise jinja2.TemplateError(f"it takes longer than {MAX_SECONDS:.0f} seconds")
    return "".join(kept)


def _to_json(
    value: object,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    *,
    ensure_ascii: bool = False,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=_as_list,
    )


def _as_list(value: object) -> list[object]:
    """Return an iterator as a list, because Jinja's `map` and `select` return iterators; raises TypeError."""
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


_PROBE = "probe 7Q3"
_FUNCTION = "probe_function"
_CALL_ID = "call00001"  # Mistral's templates require nine letters and digits
_ARGUMENTS = {"probe": "argument 8K1"}


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """Features that a template supports.

    system, developer: messages of these roles. tools: descriptions of tools. tool_results: calls, and
    messages of the role `tool`. typed_content: contents must be lists of parts. object_arguments: a call's
    arguments must be an object, not JSON text. no_tools_is_none: without tools, the variable `tools` must be
    None, as in transformers, instead of an empty list.
    """

    system: bool
    developer: bool
    tools: bool
    tool_results: bool
    typed_content: bool
    object_arguments: bool
    no_tools_is_none: bool


def detect_capabilities(template: Template, tokens: Mapping[str, str]) -> TemplateCapabilities:
    probe = _Probe(template, tokens)
    no_tools_is_none = probe.renders_user(_PROBE) or probe.renders_user([{"type": "text", "text": _PROBE}])
    probe.no_tools = None if no_tools_is_none else []
    probe.typed = not probe.renders_user(_PROBE) and probe.renders_user([{"type": "text", "text": _PROBE}])
    return TemplateCapabilities(
        system=probe.renders_system(),
        developer="developer" in template.source,
        tools=bool({"tools", "functions", "xml_tools"} & template.variables),
        tool_results=probe.renders_result(as_object=True) or probe.renders_result(as_object=False),
        typed_content=probe.typed,
        object_arguments=probe.renders_object_arguments(),
        no_tools_is_none=no_tools_is_none,
    )


class _Probe:
    def __init__(self, template: Template, tokens: Mapping[str, str]) -> None:
        self._template = template
        self._tokens = tokens
        self.typed = False
        self.no_tools: list[Any] | None = None

    def renders_user(self, content: object) -> bool:
        return _PROBE in self._render([{"role": "user", "content": content}])

    def renders_system(self) -> bool:
        return _PROBE in self._render([self._message("system", _PROBE), self._message("user", "x")])

    def renders_result(self, *, as_object: bool) -> bool:
        """Return whether the template writes a call and its result.

        A call is recognized by its name, or by its arguments, as Kimi's templates write no name.
        """
        result = self._message("tool", _PROBE) | {"name": _FUNCTION, "tool_call_id": _CALL_ID}
        text = self._render([*self._call(as_object=as_object), result])
        return _PROBE in text and (_FUNCTION in text or _ARGUMENTS["probe"] in text)

    def renders_object_arguments(self) -> bool:
        """Return whether a call's arguments may be an object. Some templates then fail or write Python."""
        text = self._render(self._call(as_object=True))
        return _ARGUMENTS["probe"] in text and "{'" not in text and '\\"' not in text

    def _call(self, *, as_object: bool) -> list[dict[str, Any]]:
        arguments = _ARGUMENTS if as_object else json.dumps(_ARGUMENTS)
        call = {"id": _CALL_ID, "type": "function", "function": {"name": _FUNCTION, "arguments": arguments}}
        return [self._message("user", "x"), self._message("assistant", "") | {"tool_calls": [call]}]

    def _message(self, role: str, content: str) -> dict[str, Any]:
        return {"role": role, "content": [{"type": "text", "text": content}] if self.typed else content}

    def _render(self, messages: list[dict[str, Any]]) -> str:
        """Return the prompt; empty if the template fails."""
        variables = {
            **date_variables(),
            **self._tokens,
            "messages": messages,
            "tools": self.no_tools,
            "functions": "[]",
            "add_generation_prompt": True,
        }
        try:
            return self._template.run(variables)
        except TemplateError:
            return ""
