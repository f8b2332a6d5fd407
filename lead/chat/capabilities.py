"""What a chat template supports, found by rendering probes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lead.chat.jinja import Template, TemplateError, date_variables

_PROBE = "probe 7Q3"
_FUNCTION = "probe_function"
_CALL_ID = "call00001"  # Mistral's templates require nine letters and digits
_ARGUMENTS = {"probe": "argument 8K1"}


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """system, developer: messages of these roles. tools: descriptions of tools.

    tool_results: calls, and messages of the role `tool`. typed_content: contents are lists of parts.
    object_arguments: a call's arguments are an object, not JSON text. thinking_field: reasoning is called
    `thinking`. no_tools_is_none: without tools the variable is None, as in transformers, or an empty list.
    """

    system: bool
    developer: bool
    tools: bool
    tool_results: bool
    typed_content: bool
    object_arguments: bool
    thinking_field: bool
    no_tools_is_none: bool


def detect_capabilities(template: Template, tokens: Mapping[str, str]) -> TemplateCapabilities:
    """`tokens` are bos_token and eos_token."""
    probe = _Probe(template, tokens)
    no_tools_is_none = probe.renders_user(_PROBE) or probe.renders_user([{"type": "text", "text": _PROBE}])
    probe.no_tools = None if no_tools_is_none else []
    probe.typed = not probe.renders_user(_PROBE) and probe.renders_user([{"type": "text", "text": _PROBE}])
    return TemplateCapabilities(
        system=probe.renders_system(),
        developer="developer" in template.source,
        tools=bool({"tools", "functions"} & template.variables),
        tool_results=probe.renders_result(as_object=True) or probe.renders_result(as_object=False),
        typed_content=probe.typed,
        object_arguments=probe.renders_object_arguments(),
        no_tools_is_none=no_tools_is_none,
        thinking_field=".thinking" in template.source or "['thinking']" in template.source,
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
        """A call and its result; the call by its name or, as Kimi's templates have it, its arguments."""
        result = self._message("tool", _PROBE) | {"name": _FUNCTION, "tool_call_id": _CALL_ID}
        text = self._render([*self._call(as_object=as_object), result])
        return _PROBE in text and (_FUNCTION in text or _ARGUMENTS["probe"] in text)

    def renders_object_arguments(self) -> bool:
        """Whether a call's arguments may be an object: other templates fail, or write it as Python does."""
        text = self._render(self._call(as_object=True))
        return _ARGUMENTS["probe"] in text and "{'" not in text and '\\"' not in text

    def _call(self, *, as_object: bool) -> list[dict[str, Any]]:
        arguments = _ARGUMENTS if as_object else json.dumps(_ARGUMENTS)
        call = {
            "id": _CALL_ID,
            "type": "function",
            "function": {"name": _FUNCTION, "arguments": arguments},
        }
        return [self._message("user", "x"), self._message("assistant", "") | {"tool_calls": [call]}]

    def _message(self, role: str, content: str) -> dict[str, Any]:
        return {"role": role, "content": [{"type": "text", "text": content}] if self.typed else content}

    def _render(self, messages: list[dict[str, Any]]) -> str:
        """The prompt; empty if the template fails."""
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
