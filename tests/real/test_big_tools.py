"""As many tools as programs with several MCP servers have, at their real size."""

import itertools
import json

import httpx
import pytest

from lab.parts.processes import start_lead
from tests.lead.chat_format.cases import source
from tests.real.client import CHAT
from tests.tiny_models import TinyModel, write_tiny_model

pytestmark = [pytest.mark.real, pytest.mark.models, pytest.mark.timeout(1800)]

KINDS = (
    {"type": "string", "description": "The path of a file in the workspace, absolute or relative to it."},
    {"enum": ["open", "closed", "all"], "description": "Which of them to list; all of them by default."},
    {"type": "integer", "minimum": 0, "maximum": 1000, "description": "How many results to return at most."},
    {"type": "boolean", "description": "Whether hidden entries are included, too."},
    {"type": "array", "items": {"type": "string"}, "description": "Labels that all of them must have."},
    {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None, "description": "A limit in seconds."},
)
TURNS = ("List the files.", "And now the others.")
HEADS = {"attention.head_count": 1, "attention.head_count_kv": 1, "rope.dimension_count": 32}


def tools(n, n_bytes):
    """Tools of this total size, with arguments of every kind, some of them nested."""
    found = []
    for number in range(n):
        properties, kinds = {}, itertools.cycle(KINDS)
        while len(json.dumps(properties)) < n_bytes / n - 250:
            options = {f"option_{i}": next(kinds) for i in range(len(properties) % 3)}
            nested = {"type": "object", "properties": options}
            properties[f"argument_{len(properties)}"] = nested if options else next(kinds)
        parameters = {"type": "object", "properties": properties, "required": ["argument_0"]}
        function = {"name": f"tool_{number}", "description": "Does one thing.", "parameters": parameters}
        found.append({"type": "function", "function": function})
    return found


@pytest.fixture
def tiny(smollm2, tmp_path):
    """A random model with 131,072 tokens of context and a usual vocabulary, and its options."""
    (tmp_path / "template.jinja").write_text(source("Qwen-Qwen3-0.6B"))
    model = TinyModel("llama", width=32, n_layers=1, settings={"context_length": 1 << 17, **HEADS})
    path = write_tiny_model(model, tmp_path / "tiny.gguf", smollm2)
    return path, "--ctx-size", "131072", "--chat-template-file", str(tmp_path / "template.jinja")


@pytest.mark.parametrize(("model", "n", "n_bytes"), [("tiny", 60, 300_000), ("smollm2", 20, 20_000)])
def test_the_second_turn_with_many_tools_reads_what_is_new(request, model, n, n_bytes):
    given = request.getfixturevalue(model)
    options = given if model == "tiny" else (given, "--ctx-size", "8192")
    asked = {"tools": tools(n, n_bytes), "max_tokens": 16, "temperature": 0}
    assert len(json.dumps(asked["tools"])) > n_bytes * 0.9
    lead, url = start_lead(
        "--model", *map(str, options), "--parallel", "1", "--threads", "2", "--no-calibrate"
    )
    with lead:
        talk, n_read = [], 0
        for said in TURNS:
            talk.append({"role": "user", "content": said})
            body = asked | {"messages": talk}
            answer = httpx.post(url + CHAT, json=body, timeout=1500).json()
            usage = answer["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] >= n_read
            n_read = usage["prompt_tokens"]
            talk.append(answer["choices"][0]["message"])
