"""What a chat template can tell a model, found by asking it to tell something."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lead.chat.jinja import Template, TemplateError

_PROBE = "needle 7Q3"
_FUNCTION = "needle_function"
_CALL_ID = "call00001"  # Mistral's templates insist on nine letters and digits
_ARGUMENTS = {"needle": _PROBE}


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """typed_content: contents are lists of parts. object_arguments: a call's are no JSON text but an object.

    tool_results: calls and messages of the role `tool`. thinking_field: reasoning is called `thinking`.
    no_tools_is_none: as in transformers; otherwise it is an empty list.
    """

    system: bool
    developer: bool
    tools: bool
    tool_results: bool
    typed_content: bool
    object_arguments: bool
    thinking_field: bool
    no_tools_is_none: bool


def detect_capabilities(program: Template, tokens: Mapping[str, str]) -> TemplateCapabilities:
    """`tokens` are bos_token and eos_token."""
    probe = _Probe(program, tokens)
    takes_none = probe.tells_user(_PROBE) or probe.tells_user([{"type": "text", "text": _PROBE}])
    probe.no_tools = None if takes_none else []
    typed = not probe.tells_user(_PROBE) and probe.tells_user([{"type": "text", "text": _PROBE}])
    probe.typed = typed
    return TemplateCapabilities(
        system=probe.tells_system(),
        developer="developer" in program.source,
        tools=bool({"tools", "functions"} & program.variables),
        tool_results=probe.tells_result(as_object=True) or probe.tells_result(as_object=False),
        typed_content=typed,
        object_arguments=probe.tells_arguments(as_object=True),
        no_tools_is_none=takes_none,
        thinking_field=".thinking" in program.source or "['thinking']" in program.source,
    )


class _Probe:
    def __init__(self, program: Template, tokens: Mapping[str, str]) -> None:
        self._program = program
        self._tokens = tokens
        self.typed = False
        self.no_tools: list[Any] | None = None

    def tells_user(self, content: object) -> bool:
        return self._tells([{"role": "user", "content": content}])

    def tells_system(self) -> bool:
        return self._tells([self._message("system", _PROBE), self._message("user", "x")])

    def tells_result(self, *, as_object: bool) -> bool:
        result = self._message("tool", _PROBE) | {"name": _FUNCTION, "tool_call_id": _CALL_ID}
        text = self._run([*self._called({"a": 1}, as_object=as_object), result])
        return text is not None and _PROBE in text and _FUNCTION in text

    def tells_arguments(self, *, as_object: bool) -> bool:
        """A template that expects text writes an object as Python does, or fails."""
        text = self._run(self._called(_ARGUMENTS, as_object=as_object))
        return text is not None and _PROBE in text and "{'" not in text and '\\"' not in text

    def _called(self, arguments: Mapping[str, Any], *, as_object: bool) -> list[dict[str, Any]]:
        function = {"name": _FUNCTION, "arguments": arguments if as_object else json.dumps(arguments)}
        call = {"id": _CALL_ID, "type": "function", "function": function}
        return [
            self._message("user", "x"),
            self._message("assistant", "") | {"tool_calls": [call]},
        ]

    def _message(self, role: str, content: str) -> dict[str, Any]:
        return {"role": role, "content": [{"type": "text", "text": content}] if self.typed else content}

    def _tells(self, messages: list[dict[str, Any]]) -> bool:
        text = self._run(messages)
        return text is not None and _PROBE in text

    def _run(self, messages: list[dict[str, Any]]) -> str | None:
        variables = {
            "messages": messages,
            "tools": self.no_tools,
            "functions": "[]",
            "add_generation_prompt": True,
            **self._tokens,
        }
        try:
            return self._program.run(variables)
        except TemplateError:
            return None
