import pkgutil
from typing import ClassVar

import pytest

from lead.apis.anthropic.anthropic_request import MessagesRequest
from lead.apis.ollama.ollama_request import OllamaChatRequest
from lead.apis.responses.responses_request import ResponsesRequest
from lead.chat_format.fields import RequestFields
from lead.chat_format.unused_fields import Unused
from lead.http.generation_request import ChatRequest
from lead.http.routes.completions import CompletionRequest, NativeRequest
from shared.errors import RequestError

OF_CLIENTS = [
    ("openai.types.chat.completion_create_params:CompletionCreateParamsBase", ChatRequest),
    ("openai.types.completion_create_params:CompletionCreateParamsBase", CompletionRequest),
    ("openai.types.responses.response_create_params:ResponseCreateParamsBase", ResponsesRequest),
    ("openai.types.responses.input_token_count_params:InputTokenCountParams", ResponsesRequest),
    ("anthropic.types.beta.message_create_params:MessageCreateParamsBase", MessagesRequest),
    ("anthropic.types.beta.message_count_tokens_params:MessageCountTokensParams", MessagesRequest),
]
"""The packages are imported in the tests that need them: this takes longer than all other tests here."""


class Wishes(RequestFields):
    unused: ClassVar = {
        "mood": Unused("a hint", None),
        "wings": Unused("there are none", (0, False)),
        "tempo": Unused("no tempo", below=1),
        "cnt": Unused("it is called count here", same_as="count"),
        "least": Unused("not supported", beside="count"),
    }
    count: int | None = None


class Nested(Wishes):
    inside = "options."


@pytest.mark.parametrize(
    "given",
    [
        {"mood": "blue"},
        {"wings": 0},
        {"wings": False},
        {"tempo": 0.5},
        {"cnt": 3, "count": 3},
        {"least": 2, "count": 3},
        {"foo": None},
        {"wings": None},
    ],
)
def test_what_asks_for_nothing_is_accepted(given):
    assert Wishes.model_validate(given).count == given.get("count")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"wings": 2}, "wings: there are none"),
        ({"tempo": 1}, "tempo: no tempo"),
        ({"tempo": "fast"}, "tempo: no tempo"),
        ({"cnt": 3}, "cnt: it is called count here"),
        ({"cnt": 3, "count": 4}, "cnt: it is called count here"),
        ({"least": 2, "count": 0}, "least: not supported"),
        ({"coumt": 3}, "coumt: unknown field: did you mean count?"),
        ({"zzz": []}, "zzz: unknown field"),
        ({"x" * 100_000: 1}, "x" * 100_000 + ": unknown field"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_name(given, sentence):
    with pytest.raises(RequestError) as refused:
        Wishes.model_validate(given)
    assert (str(refused.value), refused.value.param) == (sentence, next(iter(given)))


def test_a_field_inside_another_is_named_with_it():
    with pytest.raises(RequestError, match=r"^options.coumt: unknown field: did you mean options.count\?$"):
        Nested.model_validate({"coumt": 3})


@pytest.mark.parametrize(("of_client", "request_"), OF_CLIENTS)
def test_no_field_of_the_clients_libraries_is_unknown(of_client, request_):
    known = request_.model_fields.keys() | request_.unused.keys()
    assert pkgutil.resolve_name(of_client).__annotations__.keys() - known == set()


@pytest.mark.parametrize(
    "request_",
    [ChatRequest, CompletionRequest, NativeRequest, ResponsesRequest, MessagesRequest, OllamaChatRequest],
)
def test_a_field_that_is_done_is_not_listed(request_):
    assert request_.model_fields.keys() & request_.unused.keys() == set()


SILLY_TAVERN = """
{"prompt": "Once", "max_new_tokens": 9, "max_tokens": 9, "n_predict": 9, "num_predict": 9, "temperature": 0.7,
"top_p": 0.9, "typical_p": 1, "typical": 1, "min_p": 0.1, "repetition_penalty": 1.1, "rep_pen": 1.1,
"repeat_penalty": 1.1, "rep_pen_range": 0, "repetition_penalty_range": 0, "repeat_last_n": 0,
"rep_pen_slope": 1, "skew": 0, "min_tokens": 0, "add_bos_token": true, "smoothing_factor": 0,
"smoothing_curve": 1, "max_tokens_second": 0, "stopping_strings": ["\\nUser:"], "stop": ["\\nUser:"],
"truncation_length": 8192, "num_ctx": 8192, "ban_eos_token": false, "ignore_eos": false,
"skip_special_tokens": true, "include_reasoning": true, "top_a": 0, "tfs": 1, "mirostat_mode": 0,
"mirostat": 0, "mirostat_tau": 5, "mirostat_eta": 0.1, "custom_token_bans": "", "banned_strings": [],
"logit_bias": [], "api_type": "llamacpp", "api_server": "http://127.0.0.1:8080", "nsigma": 0,
"top_n_sigma": 0, "min_keep": 0, "adaptive_target": -0.01, "adaptive_decay": 0.9, "guidance_scale": 1,
"negative_prompt": "", "grammar": "", "cache_prompt": true}
"""


def test_all_that_silly_tavern_sends_is_known():
    assert NativeRequest.model_validate_json(SILLY_TAVERN).n_predict == 9


def test_what_only_silly_tavern_calls_so_is_refused_where_our_name_is_missing():
    with pytest.raises(RequestError, match=r"^max_new_tokens: it is called n_predict here$"):
        NativeRequest.model_validate({"prompt": "Once", "max_new_tokens": 9})


HI = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("request_", "given", "field"),
    [
        (ChatRequest, {"messages": HI, "functions": [{"name": "f"}]}, "functions"),
        (ChatRequest, {"messages": HI, "function_call": {"name": "f"}}, "function_call"),
        (ChatRequest, {"messages": HI, "modalities": ["text", "audio"]}, "modalities"),
        (ChatRequest, {"messages": HI, "web_search_options": {}}, "web_search_options"),
        (ResponsesRequest, {"input": "Hi", "top_logprobs": 3}, "top_logprobs"),
        (ResponsesRequest, {"input": "Hi", "truncation": "auto"}, "truncation"),
        (ResponsesRequest, {"input": "Hi", "prompt": {"id": "pmpt_1"}}, "prompt"),
        (MessagesRequest, {"messages": HI, "mcp_servers": [{"type": "url"}]}, "mcp_servers"),
        (OllamaChatRequest, {"messages": HI, "options": {"mirostat": 2}}, "options.mirostat"),
        (OllamaChatRequest, {"messages": HI, "logprobs": True}, "logprobs"),
        (OllamaChatRequest, {"messages": HI, "context": [1, 2]}, "context"),
    ],
)
def test_what_would_change_the_answer_is_never_ignored(request_, given, field):
    with pytest.raises(RequestError, match=f"^{field}: ") as refused:
        request_.model_validate(given)
    assert refused.value.param == field
