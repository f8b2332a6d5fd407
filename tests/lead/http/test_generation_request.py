"""Request fields: what they become, and what is refused by name."""

import dataclasses
from array import array

import pytest

from lead.engine.events import Exactness
from lead.http.generation_request import generation_request
from lead.http.schema import GenerationFields
from lead.server.app import create_app
from lead.settings.keys import Key, Keyring, Principal, Role
from lead.settings.limits import RequestLimits
from lead.settings.security import SecurityOptions
from lead.tokenizer.jobs import PreparedRequest
from shared.errors import ContextExceededError
from shared.sampling.parameters import DEFAULT_SAMPLERS
from tests.lead.http.event_streams import client_of

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
ASK = {"messages": [{"role": "user", "content": "hi"}]}


async def submitted(lead, client, **fields):
    lead.will_say("x")
    response = await client.post(CHAT, json=ASK | fields)
    assert response.status_code == 200, response.text
    return lead.engine.submitted


SAMPLING = [
    ("dry_multiplier", 0.8, 0.8),
    ("dry_base", 1.5, 1.5),
    ("dry_base", 0.5, 1.75),
    ("dry_allowed_length", 3, 3),
    ("dry_penalty_last_n", 64, 64),
    ("dry_sequence_breakers", ["\n", "x"], ("\n", "x")),
    ("xtc_probability", 0.5, 0.5),
    ("xtc_threshold", 0.2, 0.2),
    ("top_n_sigma", 1.0, 1.0),
    ("dynatemp_range", 0.4, 0.4),
    ("dynatemp_exponent", 2.0, 2.0),
    ("samplers", ["top_k", "typical_p", "min-p", "temperature"], ("top_k", "typ_p", "min_p", "temperature")),
    ("samplers", "kyt", ("top_k", "typ_p", "temperature")),
    ("samplers", "edskypmxt", DEFAULT_SAMPLERS),
    ("samplers", [], ()),
    ("grammar", "", None),
    ("mirostat", 0, None),
]


@pytest.mark.parametrize(("name", "value", "expected"), SAMPLING)
async def test_sampling_fields_reach_the_engine(lead, client, name, value, expected):
    (request,) = await submitted(lead, client, **{name: value})
    assert getattr(request.sampling, name, None) == expected


OPTIONS = [
    ({"cache_prompt": False}, {"cache_prompt": False}),
    ({"id_slot": 2}, {"slot": 2}),
    ({"id_slot": -1}, {"slot": None}),
    ({"speculative.n_max": 3}, {"n_draft": 3}),
    ({"speculative": {"n_max": 0}}, {"n_draft": 0}),
    ({"n_probs": 5, "post_sampling_probs": True}, {"n_probs": 5, "filtered": True}),
    ({"n_probs": 0}, {"n_probs": None}),
    ({"stream": True, "return_progress": True}, {"progress": True}),
    ({"return_progress": True}, {"progress": False}),
]


@pytest.mark.parametrize(("fields", "options"), OPTIONS)
async def test_request_options_reach_the_engine(lead, client, fields, options):
    (request,) = await submitted(lead, client, **fields)
    assert request.model_dump() | options == request.model_dump()


@pytest.mark.parametrize(
    ("fields", "limit"),
    [({"max_tokens": 0}, 0), ({"n_predict": -1}, None), ({"n_predict": -2}, None), ({"max_tokens": 7}, 7)],
)
async def test_limits_mean_what_they_mean_to_llama_server(lead, client, fields, limit):
    (request,) = await submitted(lead, client, **fields)
    assert request.max_tokens == limit


async def test_a_schema_becomes_a_grammar_that_starts_after_the_prompt(lead, client):
    (request,) = await submitted(lead, client, json_schema={"type": "integer"})
    assert '%json {"type": "integer"' in request.sampling.grammar
    assert request.sampling.grammar_start == len(request.tokens)


async def test_a_grammar_in_gbnf_reaches_the_engine_as_lark(lead, client):
    (request,) = await submitted(lead, client, grammar='root ::= "a"')
    assert 'r0: "a"' in request.sampling.grammar


async def test_several_answers_have_consecutive_seeds(lead, client):
    requests = await submitted(lead, client, n=3, seed=7)
    assert [request.sampling.seed for request in requests] == [7, 8, 9]
    assert len({tuple(request.tokens) for request in requests}) == 1


async def test_answers_to_several_prompts_are_in_the_order_of_the_prompts(lead, client):
    lead.will_say("x")
    response = await client.post(TEXT, json={"prompt": ["Once", "Twice"], "n": 2, "seed": 1})
    assert [choice["index"] for choice in response.json()["choices"]] == [0, 1, 2, 3]
    prompts = [lead.vocabulary.detokenize(request.tokens) for request in lead.engine.submitted]
    assert prompts == ["Once", "Once", "Twice", "Twice"]
    assert response.json()["usage"]["completion_tokens"] == 4


def request_of(lead, tokens=(5,), vocabulary=None, grammar=None, **fields):
    services = lead.app.state.services
    if vocabulary:
        services = dataclasses.replace(services, vocabulary=vocabulary)
    prepared = PreparedRequest([array("i", tokens)], grammar)
    sender = Principal(Role.CLIENT, "desk", number=7)
    return generation_request(GenerationFields(**fields), prepared, services, sender)


@pytest.mark.parametrize(
    ("by_default", "asked", "private"),
    [(False, None, False), (True, None, True), (True, False, False), (False, True, True)],
)
async def test_a_request_overrides_the_default_for_privacy(lead, by_default, asked, private):
    lead.use(security=SecurityOptions(private_by_default=by_default))
    request = request_of(lead, private=asked)
    assert (request.private, request.first.owner) == (private, None if private else 7)


@pytest.mark.parametrize(("n_bytes", "private"), [(900_000, False), (1 << 20, True)])
async def test_a_grammar_larger_than_a_protocol_message_makes_a_request_private(lead, n_bytes, private):
    request = request_of(lead, grammar="#" * n_bytes)
    assert (request.private, request.first.owner) == (private, 7)


class BeginsTexts:
    """A vocabulary with a token before each text."""

    adds_bos, bos = True, 1


@pytest.mark.parametrize(
    ("prompt", "n_keep", "n_kept"),
    [
        ([1, 5, 6, 7], 0, 1),
        ([1, 5, 6, 7], 2, 3),
        ([5, 6, 7, 8], 2, 2),
        ([1, 5, 6, 7], 99, 4),
        ([1, 5, 6, 7], -1, 4),
        ([5] * 127, -1, 124),
        ([5] * 127, 200, 124),
    ],
    ids=str,
)
async def test_a_context_shift_keeps_tokens_of_the_prompt_after_its_first_one(lead, prompt, n_keep, n_kept):
    lead.use(context_shift=True)
    assert request_of(lead, prompt, BeginsTexts(), n_keep=n_keep).first.n_keep == n_kept


async def test_without_context_shifts_nothing_is_kept(lead):
    assert request_of(lead, [1, 5], BeginsTexts(), n_keep=2).first.n_keep is None


@pytest.mark.parametrize("context_shift", [True, False])
async def test_a_prompt_that_fills_the_context_is_refused(lead, context_shift):
    lead.use(context_shift=context_shift)
    with pytest.raises(ContextExceededError, match=r"\(128 tokens\) exceeds the available context size"):
        request_of(lead, [5] * 128)


async def test_a_bound_on_prompts_is_a_smaller_context_to_clients(lead):
    lead.use(limits=RequestLimits(max_prompt_tokens=7))
    with pytest.raises(
        ContextExceededError, match=r"context size \(8 tokens, because of --max-prompt-tokens\)"
    ):
        request_of(lead, [5] * 8)


@pytest.mark.parametrize(
    ("fields", "unread"),
    [({}, True), ({"stream": True}, False), ({"stop": ["."]}, False), ({"t_max_predict_ms": 9}, False)],
)
async def test_the_engine_knows_that_nobody_reads_an_answer_before_its_end_unless_a_text_may_end_it(
    lead, fields, unread
):
    assert request_of(lead, **fields).first.unread == unread


async def test_a_private_request_is_not_shown_to_backs(lead, client):
    seen = []
    create = lead.sequences.create
    lead.sequences.create = lambda *args, **more: (seen.append(more["private"]), create(*args, **more))[1]
    await submitted(lead, client, private=True)
    assert seen == [True]


async def test_each_key_is_an_owner_of_texts_whatever_its_name(lead):
    keys = [Key(Principal(Role.CLIENT, "desk"), "one"), Key(Principal(Role.CLIENT, "desk"), "two")]
    app = create_app(lead.app.state.services, keys=Keyring(keys))
    async with client_of(app) as client:
        for key in ("one", "two", "one"):
            lead.will_say("x")
            await client.post(CHAT, json=ASK, headers={"x-api-key": key})
    first, second, third = ((request.owner, request.keep_for) for request in lead.engine.submitted)
    assert first == third
    assert first[0] != second[0]
    assert first[1] != second[1]


async def test_a_private_request_reaches_no_disk(lead, client):
    assert [request.keep_for for request in await submitted(lead, client, private=True)] == [None]


async def test_without_keys_all_texts_have_one_owner(lead, client):
    assert [request.owner for request in await submitted(lead, client)] == [0]


WRONG = [
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"content": "x"}]}, "messages"),
    ({"chat_template_kwargs": {"enable_thinking": 1}}, "chat_template_kwargs"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"min_p": -0.1}, "min_p"),
    ({"typical_p": 1.1}, "typical_p"),
    ({"top_k": 1.5}, "top_k"),
    ({"repeat_penalty": 0}, "repeat_penalty"),
    ({"repeat_last_n": -2}, "repeat_last_n"),
    ({"seed": -(2**63) - 1}, "seed"),
    ({"seed": 2**64}, "seed"),
    ({"max_tokens": -3}, "max_tokens"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"n": 0}, "n"),
    ({"stop": 3}, "stop"),
    ({"stream": "yes"}, "stream"),
    ({"logit_bias": {"4096": 1}}, "logit_bias"),
    ({"logit_bias": {"-5": 1}}, "logit_bias"),
    ({"logit_bias": {"1e3": 1}}, "logit_bias"),
    ({"logit_bias": {"1.5": 1}}, "logit_bias"),
    ({"logit_bias": [[1]]}, "logit_bias"),
    ({"logit_bias": {"5": 1e10}}, "logit_bias"),
    ({"logit_bias": [[5, 10**400]]}, "logit_bias"),
    ({"logit_bias": [[False, 1]]}, "logit_bias"),
    ({"repeat_penalty": 1e-7}, "repeat_penalty"),
    ({"ignore_eos": "no"}, "ignore_eos"),
    ({"grammar": "root ::= ("}, "grammar"),
    ({"grammar": "root ::= <|no such token|>"}, "grammar"),
    ({"grammar": 'root ::= "a"', "json_schema": {}}, "grammar"),
    ({"json_schema": {"type": "text"}}, "json_schema"),
    ({"json_schema": 3}, "json_schema"),
    ({"mirostat": 2}, "mirostat"),
    ({"samplers": ["top_k", "magic"]}, "samplers"),
    ({"samplers": "kz"}, "samplers"),
    ({"dry_multiplier": -1.0}, "dry_multiplier"),
    ({"dry_sequence_breakers": ["x" * 100]}, "dry_sequence_breakers"),
    ({"xtc_probability": 1.5}, "xtc_probability"),
    ({"n_probs": 21}, "n_probs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"n_probs": -1}, "n_probs"),
    ({"id_slot": 4}, "id_slot"),
    ({"id_slot": -2}, "id_slot"),
    ({"speculative.n_max": -1}, "speculative.n_max"),
    ({"speculative": {"n_max": "many"}}, "speculative"),
    ({"n_predict": -3}, "n_predict"),
    ({"cache_prompt": "yes"}, "cache_prompt"),
]


WRONG_OF_COMPLETIONS = [
    ({"suffix": "end"}, "suffix"),
    ({"best_of": 3}, "best_of"),
    ({"logprobs": 21}, "logprobs"),
    ({"prompt": ["x"] * 100, "n": 2}, "n"),
]


async def test_an_invalid_field_is_400_and_named(lead, client):
    wrong = [(CHAT, ASK | fields, param) for fields, param in WRONG]
    wrong += [(TEXT, {"prompt": "Once"} | fields, param) for fields, param in WRONG_OF_COMPLETIONS]
    for url, body, param in wrong:
        response = await client.post(url, json=body)
        error = response.json()["error"]
        assert (response.status_code, error["type"]) == (400, "invalid_request_error"), body
        assert (error["param"], param in error["message"]) == (param, True), body
    assert lead.engine.submitted == []


@pytest.mark.parametrize("wanted", [True, False])
async def test_prompts_are_logged_only_if_enabled(lead, client, caplog, wanted):
    caplog.set_level("INFO")
    lead.use(log_prompts=wanted)
    await client.post("/v1/completions", json={"prompt": "a secret", "max_tokens": 1})
    assert ("a secret" in caplog.text) == wanted


@pytest.mark.parametrize(("default", "private"), [(False, True), (True, None)])
async def test_private_prompts_are_not_logged(lead, client, caplog, default, private):
    caplog.set_level("INFO")
    lead.use(log_prompts=True, security=SecurityOptions(private_by_default=default))
    await client.post("/v1/completions", json={"prompt": "a secret", "max_tokens": 1, "private": private})
    assert "a secret" not in caplog.text


async def two_turns(lead, client, **fields):
    lead.will_say("It ", "is bl", "ue.")  # in more tokens than the text has
    answer = (await client.post(CHAT, json=ASK | fields)).json()["choices"][0]["message"]
    messages = [*ASK["messages"], answer, {"role": "user", "content": "Why?"}]
    await client.post(CHAT, json={"messages": messages} | fields)


async def test_the_next_turn_of_a_chat_has_the_tokens_that_the_model_wrote(lead, client):
    await two_turns(lead, client)
    assert lead.goes_on


async def test_who_wants_no_cached_prompt_gets_the_tokens_of_the_text(lead, client):
    await two_turns(lead, client, cache_prompt=False)
    assert not lead.goes_on


async def test_an_exact_text_does_not_depend_on_what_the_lead_remembers(lead, client):
    lead.engine.ready = lead.engine.ready.model_copy(update={"exactness": Exactness(is_on=True)})
    await two_turns(lead, client)
    assert not lead.goes_on


@pytest.mark.parametrize("has_checkpoints", [True, False])
async def test_where_prompts_may_be_cut_is_found_out_for_targets_with_checkpoints(
    lead, client, has_checkpoints
):
    lead.engine.ready = lead.engine.ready.model_copy(update={"has_checkpoints": has_checkpoints})
    (request,) = await submitted(lead, client, messages=[{"role": "user", "content": "word " * 70}])
    assert bool(request.checkpoints) == has_checkpoints
