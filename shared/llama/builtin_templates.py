"""llama.cpp's built-in chat templates, by name (`--chat-template llama3`). They do not support tools."""

import ctypes
import functools
from collections.abc import Sequence

from shared.llama.native import llama_cpp

_MAX_NAMES = 256


@functools.cache
def names() -> frozenset[str]:
    output = (ctypes.c_char_p * _MAX_NAMES)()
    n = llama_cpp.llama_chat_builtin_templates(output, _MAX_NAMES)
    return frozenset(name.decode() for name in output[: min(n, _MAX_NAMES)] if name)


def apply(name: str, messages: Sequence[tuple[str, str]], *, add_generation_prompt: bool) -> str:
    """Render `messages`, (role, content) each, as a prompt; raises ValueError if the template fails."""
    native = (llama_cpp.llama_chat_message * len(messages))(
        *(llama_cpp.llama_chat_message(_native(role), _native(content)) for role, content in messages)
    )
    size = 256 + 2 * sum(len(role) + 4 * len(content) for role, content in messages)
    while True:
        buffer = ctypes.create_string_buffer(size)
        n = llama_cpp.llama_chat_apply_template(
            name.encode(), native, len(messages), add_generation_prompt, buffer, size
        )
        if n < 0:
            raise ValueError(f"llama.cpp's template {name} cannot be applied to these messages")
        if n <= size:
            return buffer.raw[:n].decode("utf-8", "replace")
        size = n


def _native(text: str) -> bytes:
    """Return a C string without NUL, which would end it."""
    return text.replace("\0", "").encode("utf-8", "replace")
