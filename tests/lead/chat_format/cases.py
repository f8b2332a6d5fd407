"""The corpus of chat templates and outputs (see corpus/README.md)."""

import functools
import json
import tarfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lead.chat_format.output_format import ParserConfig
from lead.chat_format.request import ConversationFields
from lead.chat_format.request_parts import ChatMessage, TemplateInput
from lead.chat_format.template import ChatTemplate

_FOLDER = Path(__file__).parent / "corpus"
HELLO = {"role": "user", "content": "Hello"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@functools.cache
def _sources():
    with tarfile.open(_FOLDER / "templates.tar.xz") as archive:
        return {Path(each.name).stem: archive.extractfile(each).read().decode() for each in archive}


def source(name):
    return _sources()[name]


@functools.cache
def template(name):
    return ChatTemplate(source(name), "<s>", "</s>")


@functools.cache
def formats():
    """The tool formats of the corpus, each by the name of a template that has it."""
    found = {}
    for name in load("templates.toml"):
        found.setdefault(template(name).tool_format.write([("add", {"a": 1})]), name)
    return {name: template(name).tool_format for name in found.values()}


def load(name):
    return tomllib.loads((_FOLDER / name).read_text("utf-8"))


def tool(name):
    return {
        "type": "function",
        "function": {"name": name, "description": "", "parameters": {"type": "object"}},
    }


def asked(**fields):
    return ConversationFields.model_validate({"messages": [HELLO]} | fields)


def typed_tool(name, schema=SCHEMA):
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def with_tools(**fields):
    """A request with tools whose names begin alike, and a tool whose name has to be escaped."""
    names = ("add", "addition", 'odd "\\ name')
    return asked(tools=[typed_tool(name) for name in names], **fields)


def parser_config(chat, prompt, names, *, calls=True):
    """The parser as the lead configures it for tools with these names."""
    return ParserConfig(
        reasoning=chat.reasoning,
        in_reasoning=chat.reasoning is not None and chat.reasoning.is_open(prompt),
        tool_format=chat.tool_format if calls else None,
        ignored_markers=chat.answers.ignored,
        tools=frozenset(names),
        unfinished=chat.answers.unfinished if prompt.endswith(chat.answers.unfinished) else "",
    )


@dataclass(frozen=True)
class Case:
    """An entry of outputs.toml."""

    template: str
    output: str
    content: str = ""
    reasoning: str = ""
    calls: list[Any] = field(default_factory=list)
    ids: list[str] | None = None
    tools: bool = True
    names: list[str] | None = None
    variables: dict[str, Any] = field(default_factory=dict)

    @property
    def expected(self):
        calls = [(name, json.loads(arguments)) for name, arguments in self.calls]
        return self.content, self.reasoning, calls, self.ids

    def prompt(self):
        chat = template(self.template)
        tools = [tool(name) for name in sorted(self._names())] if self.tools else []
        return chat.render(TemplateInput([ChatMessage(**HELLO)], tools, variables=self.variables))

    def config(self):
        return parser_config(template(self.template), self.prompt(), self._names(), calls=self.tools)

    def text(self):
        if "<<open>>" not in self.output:
            return self.output
        config = self.config()
        return self.output.replace("<<open>>", "" if config.in_reasoning else config.reasoning.start)

    def _names(self):
        return set(self.names or [name for name, _ in self.calls] or ["special_function"])


CASES = [Case(**case) for case in load("outputs.toml")["case"]]
