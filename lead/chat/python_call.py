"""Tool calls that Llama 3 and Functionary write as code, after `<|python_tag|>`."""

import re
from collections.abc import Collection

from lead.chat.json_stream import decode

_CALL = re.compile(r"\s*+([\w.]+?)(?:\.call)?\((.*)\)\s*+", re.DOTALL)
_ARGUMENT = re.compile(r'(?<!\w)(\w++)\s*+=\s*+("(?:[^"\\]++|\\.)*+"|[^,"]++)')
"""Linear: it begins only where a word begins, and nothing is read in two ways."""
_INTERPRETERS = ("python", "ipython", "code_interpreter")


def parse_python_call(code: str, tools: Collection[str]) -> tuple[str, dict[str, object]] | None:
    """The tool and arguments of `name.call(key="value")`; other code is for the interpreter tool, if any."""
    call = _CALL.fullmatch(code)
    if call and call[1] in tools:
        return call[1], {key: _value(text) for key, text in _ARGUMENT.findall(call[2])}
    interpreter = next((name for name in _INTERPRETERS if name in tools), None)
    return (interpreter, {"code": code}) if interpreter and code.strip() else None


def _value(text: str) -> object:
    try:
        return decode(text)
    except ValueError:
        return text.strip()
