"""The chat template of a GGUF file: Jinja, written by strangers, so it runs in Jinja's sandbox."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from shared.errors import RequestError

CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""What llama-server uses for a model without a template of its own."""


class ChatTemplate:
    """Renders conversations as the text of a prompt."""

    def __init__(self, source: str | None, bos: str, eos: str) -> None:
        """`bos` and `eos` are the texts of those tokens, which templates refer to."""
        self.source = source or CHATML
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json  # Jinja's own escapes HTML
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self._template = environment.from_string(self.source)
        self._tokens = {"bos_token": bos, "eos_token": eos}

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The prompt up to where the assistant's answer begins; raises RequestError for what it refuses."""
        try:
            return self._template.render(messages=list(messages), add_generation_prompt=True, **self._tokens)
        except Exception as error:  # a template is somebody's program: it may fail in any way
            raise RequestError(
                f"the model's chat template refuses these messages: {error}", "messages"
            ) from error


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().astimezone().strftime(layout)
