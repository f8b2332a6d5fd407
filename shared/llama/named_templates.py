"""The chat templates that llama.cpp has built in, by name (`--chat-template llama3`): turns, no tools."""

import ctypes
import functools
from collections.abc import Sequence

import llama_cpp

_MOST_NAMES = 256


@functools.cache
def names() -> frozenset[str]:
    """The names that llama.cpp knows."""
    output = (ctypes.c_char_p * _MOST_NAMES)()
    n = llama_cpp.llama_chat_builtin_templates(output, _MOST_NAMES)
    return frozenset(name.decode() for name in output[: min(n, _MOST_NAMES)] if name)


def apply(name: str, messages: Sequence[tuple[str, str]], *, open_answer: bool) -> str:
    """The prompt of `messages`, (role, content) each; raises ValueError if the template cannot be applied."""
    native = (llama_cpp.llama_chat_message * len(messages))(
        *(llama_cpp.llama_chat_message(_native(role), _native(content)) for role, content in messages)
    )
    size = 256 + 2 * sum(len(role) + 4 * len(content) for role, content in messages)
    while True:
        buffer = ctypes.create_string_buffer(size)
        n = llama_cpp.llama_chat_apply_template(
            name.encode(),
            native,
            len(messages),
            open_answer,
            buffer,
            size,
        )
        if n < 0:
            raise ValueError(f"llama.cpp's template {name} cannot be applied to these messages")
        if n <= size:
            return buffer.raw[:n].decode("utf-8", "replace")
        size = n


def _native(text: str) -> bytes:
    """As a C string: a NUL would end it."""
    return text.replace("\0", "").encode("utf-8", "replace")
