"""Two leads behind SMG and HAProxy, as deploy/fleet sets them up: the answers, and the paths of requests.

The ways to a lead: `smg`, `door` (HAProxy before SMG) and `alone` (HAProxy without SMG).
"""

import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.parts.processes import Program, free_port, start_lead
from shared.convert.grow import Shape, grow
from shared.model_files.builtin import builtin_target
from tests.real.client import chat, connect, post, stream, text_of
from tests.real.processes import LEAD, kill
from tests.routers import haproxy, smg_python, start_haproxy, start_smg

pytestmark = [pytest.mark.real, pytest.mark.routers]

ALICE, BOB = "key-of-alice", "key-of-bob"
WAYS = ("smg", "door", "alone")
LONG = "Zorvi the fox once met a quiet owl who lived near the river. " * 16


@dataclass(frozen=True)
class Fleet:
    leads: list[Program]
    urls: list[str]
    ways: dict[str, str]

    def through(self, way):
        """The URL of this way in. Skips the test if its program is missing."""
        if way not in self.ways:
            pytest.skip("no SMG: run `make router`" if haproxy() else "no haproxy, or no SMG")
        return self.ways[way]


@contextmanager
def fleet(target: Path, folder: Path, *arguments: str):
    """Two leads behind all routers that are installed."""
    keys = folder / "api"
    keys.write_text(f"# clients\n{ALICE}\n{BOB}\n")
    python, binary = smg_python(), haproxy()
    if not (python or binary):
        pytest.skip("neither SMG (`make router`) nor haproxy")
    common = ("--model", str(target), "--alias", "fleet", "--api-key-file", str(keys), *LEAD, *arguments)
    with ExitStack() as stack:

        def run(started):
            program, url = started
            stack.enter_context(program)
            return program, url

        leads, urls = zip(*(run(start_lead(*common)) for _ in range(2)), strict=True)
        ways = {}
        if python:
            _, ways["smg"] = run(start_smg(python, urls, keys))
        if binary and python:
            _, ways["door"] = run(start_haproxy(binary, urls, keys, ways["smg"]))
        if binary:
            _, ways["alone"] = run(start_haproxy(binary, urls, keys, f"127.0.0.1:{free_port()}"))
        yield Fleet(list(leads), list(urls), ways)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The shipped target in f32, whose text depends least on other sequences in a batch."""
    path = tmp_path_factory.mktemp("models") / "small.gguf"
    grow(builtin_target(), path, Shape(width=256, n_layers=6, n_heads=8, n_feed_forward=768), "f32")
    return path


@pytest.fixture(scope="module")
def shared(small, tmp_path_factory):
    """A fleet for tests that leave the leads running."""
    with fleet(small, tmp_path_factory.mktemp("fleet")) as running:
        yield running


@pytest.fixture
def own(small, tmp_path):
    with fleet(small, tmp_path, "--drain-seconds", "200") as running:
        yield running


def client(url, key=ALICE):
    return connect(url, key)


def ask(url, key=ALICE, **fields):
    """The response to a chat request."""
    return post(url, chat(model="fleet", **fields), key=key)


# What clients get


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_arrives_whole_with_our_own_fields(shared, way):
    direct = ask(shared.urls[0], max_tokens=40)
    with stream(shared.through(way), key=ALICE, model="fleet", max_tokens=40, prediction=None) as answer:
        pieces = []
        answer.until(lambda reply: pieces.append(reply.text) or reply.done)
        reply = answer.rest()
    assert (reply.text, reply.done, reply.n_generated) == (text_of(direct), True, 40)
    assert len(set(pieces)) > 2


@pytest.mark.parametrize("way", WAYS)
def test_what_only_llama_duo_and_llama_server_know_reaches_the_lead(shared, way):
    url = shared.through(way)
    assert text_of(ask(url, grammar='root ::= "yes, " "always"', ignore_eos=False)) == "yes, always"
    answer = ask(url, return_speculation=True, private=True, max_tokens=3).json()
    assert len(answer["speculation"]["tokens"]) == 3
    assert answer["timings"]["predicted_n"] == 3


@pytest.mark.parametrize("way", WAYS)
def test_anthropics_and_openais_other_apis_work(shared, way):
    question = [{"role": "user", "content": "Tell me a story."}]
    with client(shared.through(way)) as http:
        message = http.post("/v1/messages", json={"model": "fleet", "max_tokens": 5, "messages": question})
        counted = http.post("/v1/messages/count_tokens", json={"model": "fleet", "messages": question})
        response = http.post("/v1/responses", json={"model": "fleet", "input": "Hi", "max_output_tokens": 5})
        completed = http.post("/v1/completions", json={"model": "fleet", "prompt": "Once", "max_tokens": 5})
        listed = http.get("/v1/models")
    assert message.json()["usage"]["output_tokens"] <= 5, message.text
    assert counted.json()["input_tokens"] > 0, counted.text
    assert response.json()["usage"]["output_tokens"] <= 5, response.text
    assert completed.json()["usage"]["completion_tokens"] <= 5, completed.text
    assert [each["id"] for each in listed.json()["data"]] == ["fleet"]


@pytest.mark.parametrize("way", WAYS)
def test_a_leads_refusal_keeps_its_words(shared, way):
    response = ask(shared.through(way), mirostat=2)
    assert (response.status_code, "mirostat" in response.text) == (400, True)


@pytest.mark.parametrize("way", ["door", "alone"])
def test_llama_servers_own_paths_pass_haproxy(shared, way):
    with client(shared.through(way)) as http:
        body = {"prompt": "Once upon a time", "n_predict": 4, "temperature": 0, "ignore_eos": True}
        completion = http.post("/completion", json=body)
        tokens = http.post("/tokenize", json={"content": "Once"})
    assert completion.json()["tokens_predicted"] == 4, completion.text
    assert tokens.json()["tokens"], tokens.text


# Who gets in


@pytest.mark.parametrize("key", [None, "wrong", ALICE])
def test_nobody_controls_smg(shared, key):
    with client(shared.through("smg"), key) as http:
        worker = {"url": "http://127.0.0.1:1", "api_key": "x"}
        assert http.post("/workers", json=worker).status_code in {401, 403}
        assert http.get("/workers").status_code in {401, 403}
        assert http.post("/flush_cache").status_code in {401, 403}


def test_without_a_key_smg_answers_no_question(shared):
    with client(shared.through("smg"), None) as http:
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/generate"):
            assert http.post(path, json=chat(model="fleet")).status_code == 401, path


def test_anthropics_way_to_send_a_key_passes_the_door(shared):
    body = chat(model="fleet", max_tokens=2)
    with client(shared.through("door"), None) as http:
        answer = http.post("/v1/messages", json=body, headers={"x-api-key": BOB})
    assert answer.status_code == 200, answer.text


def test_behind_smg_leads_tell_clients_apart(shared):
    answer = ask(shared.through("smg"), key=BOB, max_tokens=1)
    lead = shared.leads[shared.urls.index(answer.headers["x-smg-routed-worker-id"])]
    lead.wait_for("POST /v1/chat/completions .*client client-2,")


# Where requests go


def cached_in_later_turns(url, subject, n_turns=3):
    """For each turn after the first, the cached share of the last turn's prompt."""
    messages = [{"role": "user", "content": f"{subject} {LONG}"}]
    shares, before = [], None
    for turn in range(n_turns):
        response = ask(url, messages=messages, max_tokens=8)
        messages += [
            {"role": "assistant", "content": text_of(response)},
            {"role": "user", "content": f"And then? ({turn})"},
        ]
        usage = response.json()["usage"]
        if before is not None:
            shares.append(usage["prompt_tokens_details"]["cached_tokens"] / before)
        before = usage["prompt_tokens"]
    return shares


@pytest.mark.parametrize("way", WAYS)
def test_conversations_stay_where_their_prefix_is(shared, way):
    url = shared.through(way)
    for subject in ("A baker.", "Ships, for once!", "Of cabbages."):
        assert min(cached_in_later_turns(url, f"{way}: {subject}")) > 0.9


def test_requests_with_one_hot_prefix_spread(shared):
    url = shared.through("smg")
    system = [{"role": "system", "content": LONG}]
    ask(url, messages=[*system, {"role": "user", "content": "Warm up."}], max_tokens=1)

    def one(number):
        question = {"role": "user", "content": f"Question {number}?"}
        response = ask(url, messages=[*system, question], max_tokens=60)
        assert response.status_code == 200, response.text
        return response.headers["x-smg-routed-worker-id"]

    with ThreadPoolExecutor(12) as pool:
        counts = Counter(pool.map(one, range(12)))
    assert set(counts) == set(shared.urls)
    assert min(counts.values()) >= 4


# When a lead goes


def test_after_a_lead_is_killed_every_new_request_is_answered(own):
    kill(own.leads[0])
    for way, url in own.ways.items():
        statuses = [ask(url, prompt=f"{way} {number}", max_tokens=1).status_code for number in range(6)]
        assert statuses == [200] * 6, way


def test_nothing_is_lost_when_a_lead_is_told_to_stop(own):
    with ExitStack() as stack:
        streams = []
        for way, url in own.ways.items():
            for number in range(4):
                fields = {"model": "fleet", "prompt": f"{way}, {number}", "max_tokens": 300}
                answer = stack.enter_context(stream(url, key=ALICE, **fields))
                streams.append(answer.until(lambda reply: reply.text))
        own.leads[0].signal(signal.SIGTERM)
        own.leads[0].wait_for("stopping: ")
        late = [ask(url, prompt=f"late {n}", max_tokens=2) for url in own.ways.values() for n in range(4)]
        assert [each.status_code for each in late] == [200] * len(late)
        replies = [answer.rest() for answer in streams]
    assert [(reply.done, reply.finish_reason, reply.error) for reply in replies] == [
        (True, "length", None)
    ] * len(replies)
