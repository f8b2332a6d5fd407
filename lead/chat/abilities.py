"""What a chat template can tell a model, found by asking it to tell something."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lead.chat.program import Program, TemplateProgramError

_NEEDLE = "needle 7Q3"
_CALL_ID = "call00001"  # Mistral's templates insist on nine letters and digits
_ARGUMENTS = {"needle": "needle 7Q3"}


@dataclass(frozen=True, slots=True)
class Abilities:
    """typed_content: contents are lists of parts. object_arguments: a call's are no JSON text but an object.

    tool_results: calls and messages of the role `tool`. thinking_field: reasoning is called `thinking`.
    """

    system: bool
    developer: bool
    tools: bool
    tool_results: bool
    typed_content: bool
    object_arguments: bool
    thinking_field: bool


def find_abilities(program: Program, tokens: Mapping[str, str]) -> Abilities:
    """`tokens` are bos_token and eos_token."""
    probe = _Probe(program, tokens)
    typed = not probe.tells_user(_NEEDLE) and probe.tells_user([{"type": "text", "text": _NEEDLE}])
    probe.typed = typed
    return Abilities(
        system=probe.tells_system(),
        developer="developer" in program.source,
        tools="tools" in program.variables,
        tool_results=probe.tells_result(as_object=True) or probe.tells_result(as_object=False),
        typed_content=typed,
        object_arguments=probe.tells_arguments(as_object=True),
        thinking_field=".thinking" in program.source or "['thinking']" in program.source,
    )


class _Probe:
    def __init__(self, program: Program, tokens: Mapping[str, str]) -> None:
        self._program = program
        self._tokens = tokens
        self.typed = False

    def tells_user(self, content: object) -> bool:
        return self._tells([{"role": "user", "content": content}])

    def tells_system(self) -> bool:
        return self._tells([self._message("system", _NEEDLE), self._message("user", "x")])

    def tells_result(self, *, as_object: bool) -> bool:
        result = self._message("tool", _NEEDLE) | {"name": "f", "tool_call_id": _CALL_ID}
        return self._tells([*self._called({"a": 1}, as_object=as_object), result])

    def tells_arguments(self, *, as_object: bool) -> bool:
        """As JSON: a template that expects text writes an object as Python does, or fails."""
        text = self._run(self._called(_ARGUMENTS, as_object=as_object))
        return text is not None and '"needle"' in text and '\\"' not in text

    def _called(self, arguments: Mapping[str, Any], *, as_object: bool) -> list[dict[str, Any]]:
        function = {"name": "f", "arguments": arguments if as_object else json.dumps(arguments)}
        call = {"id": _CALL_ID, "type": "function", "function": function}
        return [
            self._message("user", "x"),
            self._message("assistant", "") | {"tool_calls": [call]},
        ]

    def _message(self, role: str, content: str) -> dict[str, Any]:
        return {"role": role, "content": [{"type": "text", "text": content}] if self.typed else content}

    def _tells(self, messages: list[dict[str, Any]]) -> bool:
        text = self._run(messages)
        return text is not None and _NEEDLE in text

    def _run(self, messages: list[dict[str, Any]]) -> str | None:
        variables = {"messages": messages, "tools": None, "add_generation_prompt": True, **self._tokens}
        try:
            return self._program.run(variables)
        except TemplateProgramError:
            return None
