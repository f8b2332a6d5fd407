"""For each bound on requests, a request that exceeds it by one is refused."""

import pytest

from lead.settings.limits import RequestLimits

TEXT, CHAT = {"prompt": "Hi"}, {"messages": [{"role": "user", "content": "Hi"}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
OBJECT = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {}}}}}


def both(name, within, beyond):
    return [TEXT | {name: within}, TEXT | {name: beyond}]


ASKED_FOR = {
    "max_prompt_tokens": (2, "/v1/completions", [{"prompt": [1, 2]}, {"prompt": [1, 2, 3]}], "prompt"),
    "max_n": (2, "/v1/completions", both("n", 2, 3), "n"),
    "max_prompts": (2, "/v1/completions", both("prompt", ["a"] * 2, ["a"] * 3), "prompt"),
    "max_stops": (1, "/v1/completions", both("stop", ["a"], ["a", "b"]), "stop"),
    "max_stop_characters": (2, "/v1/completions", both("stop", "ab", "abc"), "stop"),
    "max_logit_bias": (1, "/v1/completions", both("logit_bias", {"1": 1}, {"1": 1, "2": 1}), "logit_bias"),
    "max_top_logprobs": (2, "/v1/completions", both("logprobs", 2, 3), "logprobs"),
    "max_grammar_bytes": (
        *(12, "/v1/completions", both("grammar", 'root ::= "a"', 'root ::= "ab"'), "grammar"),
    ),
    "max_schema_depth": (
        *(2, "/completion", both("json_schema", {"type": "object"}, OBJECT), "json_schema"),
    ),
    "max_tools": (0, "/v1/chat/completions", [CHAT | {"tools": [TOOL] * n} for n in (0, 1)], "tools"),
}
"""By bound: its value, the path, a request within it and a request beyond it, and the field at fault."""

ELSEWHERE = {
    *("max_body_bytes", "header_seconds", "body_seconds", "write_seconds"),  # tests/lead/http/middleware
    *("max_backs", "max_draft", "max_drafts_per_second", "max_draft_bytes_per_second"),  # tests/lead/backs
    "max_queue",  # tests/lead/engine_client/test_engine_client.py
    "ping_seconds",  # tests/lead/server/test_server.py
    "prepare_seconds",  # tests/lead/tokenizer
}


def test_every_bound_is_tested():
    assert ASKED_FOR.keys() | ELSEWHERE == RequestLimits.model_fields.keys()


@pytest.fixture(params=ASKED_FOR)
def bounded(lead, request):
    """(path, a request within the bound, a request beyond it, the wrong field) of a lead with a low bound."""
    value, path, (within, beyond), field = ASKED_FOR[request.param]
    lead.use(limits=RequestLimits(**{request.param: value}, **_without_its_rival(request.param)))
    lead.will_say("a")
    return path, within, beyond, field


def _without_its_rival(bound):
    """max_prompts counts answers to all prompts. Each prompt may always have max_n answers."""
    return {"max_n": 1} if bound == "max_prompts" else {}


async def test_what_is_within_a_bound_is_answered(client, bounded):
    path, within, _, _ = bounded
    answer = await client.post(path, json=within)
    assert answer.status_code == 200, answer.text


async def test_what_is_beyond_it_is_refused_by_name(client, bounded):
    path, _, beyond, field = bounded
    answer = await client.post(path, json=beyond)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field), answer.text
