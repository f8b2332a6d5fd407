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


SAMPLING = [  # each reaches the engine: tests/lead/chat_format/test_sampling_fields.py
    ("dry_base", 0.5, 1.75),
    ("dry_sequence_breakers", ["\n", "x"], ("\n", "x")),
    ("samplers", ["top_k", "typical_p", "min-p", "temperature"], ("top_k", "typ_p", "min_p", "temperature")),
    ("samplers", "kyt", ("top_k", "typ_p", "temperature")),
    ("samplers", "edskypmxt", DEFAULT_SAMPLERS),
    ("samplers", [], ()),
    ("grammar", "", None),
    ("mirostat", 0, None),
]


@pytest.mark.parametrize(("name", "value", "expected"), SAMPLING)
async def test_sampling_fields_mean_what_they_mean_to_llama_server(lead, client, name, value, expected):
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
    assert (request.first.keep_for is None) == private


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


@pytest.mark.parametrize(
    ("options", "n_tokens", "reason"),
    [
        ({"context_shift": True}, 128, r"\(128 tokens\) exceeds the available context size"),
        ({"context_shift": False}, 128, r"\(128 tokens\) exceeds the available context size"),
        ({"limits": RequestLimits(max_prompt_tokens=7)}, 8, r"\(8 tokens, because of --max-prompt-tokens\)"),
    ],
    ids=["it may shift", "it does not shift", "there is a bound on prompts"],
)
async def test_a_prompt_that_fills_the_context_is_refused(lead, options, n_tokens, reason):
    lead.use(**options)
    with pytest.raises(ContextExceededError, match=reason):
        request_of(lead, [5] * n_tokens)


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


async def test_without_keys_all_texts_have_one_owner(lead, client):
    assert [request.owner for request in await submitted(lead, client)] == [0]


WRONG = {
    "messages": ([], "hi", [{"content": "x"}]),
    "chat_template_kwargs": ({"enable_thinking": 1},),
    "continue_final_message": (True,),
    "temperature": (-1, "hot", True),
    "top_p": (2,),
    "min_p": (-0.1,),
    "typical_p": (1.1,),
    "top_k": (1.5,),
    "repeat_penalty": (0, 1e-7),
    "repeat_last_n": (-2,),
    "seed": (-(2**63) - 1, 2**64),
    "max_tokens": (-3, "many"),
    "n_predict": (-3,),
    "n": (0,),
    "stop": (3,),
    "stream": ("yes",),
    "logit_bias": (
        *({"4096": 1}, {"-5": 1}, {"1e3": 1}, {"1.5": 1}, {"5": 1e10}),
        *([[1]], [[5, 10**400]], [[False, 1]]),
    ),
    "ignore_eos": ("no",),
    "grammar": ("root ::= (", "root ::= <|no such token|>"),
    "json_schema": ({"type": "text"}, 3),
    "mirostat": (2,),
    "samplers": (["top_k", "magic"], "kz"),
    "dry_multiplier": (-1.0,),
    "dry_sequence_breakers": (["x" * 100],),
    "xtc_probability": (1.5,),
    "n_probs": (21, -1),
    "top_logprobs": (3,),
    "id_slot": (4, -2),
    "speculative.n_max": (-1,),
    "speculative": ({"n_max": "many"},),
    "cache_prompt": ("yes",),
}
TOGETHER = [
    (CHAT, ASK | {"grammar": 'root ::= "a"', "json_schema": {}}, "grammar"),
    (CHAT, ASK | {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    (TEXT, {"prompt": ["x"] * 100, "n": 2}, "n"),
]
OF_COMPLETIONS = {"suffix": "end", "best_of": 3, "logprobs": 21}


async def test_an_invalid_field_is_400_and_named(lead, client):
    wrong = [(CHAT, ASK | {name: value}, name) for name, values in WRONG.items() for value in values]
    wrong += [(TEXT, {"prompt": "Once", name: value}, name) for name, value in OF_COMPLETIONS.items()]
    for url, body, param in [*wrong, *TOGETHER]:
        response = await client.post(url, json=body)
        error = response.json()["error"]
        assert (response.status_code, error["type"]) == (400, "invalid_request_error"), body
        assert (error["param"], param in error["message"]) == (param, True), body
    assert lead.engine.submitted == []


@pytest.mark.parametrize(
    ("log_prompts", "private_by_default", "private", "logged"),
    [
        (True, False, None, True),
        (False, False, None, False),
        (True, False, True, False),
        (True, True, None, False),
    ],
)
async def test_prompts_are_logged_only_if_enabled_and_not_private(  # noqa: PLR0917 - a table's columns
    lead, client, caplog, log_prompts, private_by_default, private, logged
):
    caplog.set_level("INFO")
    lead.use(log_prompts=log_prompts, security=SecurityOptions(private_by_default=private_by_default))
    await client.post(TEXT, json={"prompt": "a secret", "max_tokens": 1, "private": private})
    assert ("a secret" in caplog.text) == logged


async def two_turns(lead, client, **fields):
    lead.will_say("It ", "is bl", "ue.")  # in more tokens than the text has
    answer = (await client.post(CHAT, json=ASK | fields)).json()["choices"][0]["message"]
    messages = [*ASK["messages"], answer, {"role": "user", "content": "Why?"}]
    await client.post(CHAT, json={"messages": messages} | fields)


@pytest.mark.parametrize(
    ("is_on", "fields", "goes_on"),
    [(False, {}, True), (False, {"cache_prompt": False}, False), (True, {}, False)],
    ids=["usually", "who wants no cached prompt", "an exact text"],
)
async def test_the_next_turn_of_a_chat_has_the_tokens_that_the_model_wrote(
    lead, client, is_on, fields, goes_on
):
    lead.engine.ready = lead.engine.ready.model_copy(update={"exactness": Exactness(is_on=is_on)})
    await two_turns(lead, client, **fields)
    assert lead.goes_on == goes_on


@pytest.mark.parametrize("has_checkpoints", [True, False])
async def test_where_prompts_may_be_cut_is_found_out_for_targets_with_checkpoints(
    lead, client, has_checkpoints
):
    lead.engine.ready = lead.engine.ready.model_copy(update={"has_checkpoints": has_checkpoints})
    (request,) = await submitted(lead, client, messages=[{"role": "user", "content": "word " * 70}])
    assert bool(request.checkpoints) == has_checkpoints
