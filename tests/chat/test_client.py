import ssl

import httpx
import pytest

from chat.answer import ChatAnswer
from chat.client import LeadClient
from chat.errors import IncompleteAnswerError, NotReadyError, RejectedError, UnreachableError
from tests.chat.fakes import URL, FakeLead, Stream, answers, end_events, event, refuses, streams, text_event

REQUEST = {"messages": [{"role": "user", "content": "Hi"}]}


def new_answer():
    return ChatAnswer(lambda: 0.0)


def ask(lead, answer=None, **options):
    """All tokens of one answer as (text, source)."""
    with lead.client(**options) as client:
        return [(token.text, token.source) for token in client.stream(REQUEST, answer or new_answer())]


def test_a_stream_with_sources_and_usage_is_asked_for():
    lead = FakeLead(answers("Hi"))
    ask(lead)
    assert lead.requests[0].url == f"{URL}/v1/chat/completions"
    assert lead.bodies[0] == {
        **REQUEST,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_speculation": True,
    }


def test_the_key_is_sent_as_a_bearer_token():
    lead = FakeLead(answers("Hi"))
    ask(lead, api_key="sesame")
    assert lead.requests[0].headers["authorization"] == "Bearer sesame"


def test_any_openai_compatible_server_works():
    lead = FakeLead(
        streams(
            event({"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),
            event({"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]}),
            event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
            event("[DONE]"),
        )
    )
    assert ask(lead) == [("Hi", None)]


def test_a_strict_server_is_asked_again_without_return_speculation_and_remembered():
    lead = FakeLead(refuses(422, "return_speculation: extra"), answers("a"), answers("b"))
    with lead.client() as client:
        for _ in range(2):
            list(client.stream(REQUEST, new_answer()))
    assert ["return_speculation" in body for body in lead.bodies] == [True, False, False]


def models(*names):
    return {"/v1/models": {"data": [{"id": name} for name in names]}}


def test_the_only_model_is_named_if_the_server_requires_one():
    lead = FakeLead(refuses(400, "Model is required"), answers("a"), answers("b"), places=models("big"))
    with lead.client() as client:
        for _ in range(2):
            list(client.stream(REQUEST, new_answer()))
    assert [body.get("model") for body in lead.bodies] == [None, "big", "big"]


def test_models_that_do_not_chat_are_left_out():
    listed = {"data": [{"id": "big"}, {"id": "vectors", "task": "embedding"}, {"id": "x", "task": ["chat"]}]}
    with FakeLead(places={"/v1/models": listed}).client() as client:
        assert client.models() == ["big", "x"]


def test_the_user_is_asked_to_choose_among_several_models():
    lead = FakeLead(refuses(400, "model is required"), places=models("big", "small"))
    with pytest.raises(RejectedError, match=r"model is required \(The server has several models. Choose one"):
        ask(lead)


def test_a_model_that_was_named_and_refused_is_not_replaced():
    lead = FakeLead(refuses(404, "no such model"), places=models("big"))
    with lead.client() as client, pytest.raises(RejectedError, match="no such model"):
        list(client.stream({**REQUEST, "model": "other"}, new_answer()))


@pytest.mark.parametrize("places", [{}, models(), models("big")])
def test_an_error_that_mentions_the_model_is_raised_if_it_persists(places):
    lead = FakeLead(*[refuses(400, "too long for the model")] * 2, places=places)
    with pytest.raises(RejectedError, match="too long for the model"):
        ask(lead)


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_read_from_a_server_that_is_not_ready(status):
    with pytest.raises(NotReadyError, match="loading the model") as caught:
        ask(FakeLead(refuses(status, "loading the model", {"Retry-After": "5"})))
    assert caught.value.retry_after == 5


@pytest.mark.parametrize("value", ["", "nan", "inf", "-1", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_an_invalid_retry_after_is_ignored(value):
    with pytest.raises(NotReadyError) as caught:
        ask(FakeLead(refuses(503, "loading", {"Retry-After": value})))
    assert caught.value.retry_after is None


@pytest.mark.parametrize("status", [401, 403])
def test_a_missing_key_is_explained(status):
    with pytest.raises(RejectedError, match="--api-key-file or CHAT_API_KEY"):
        ask(FakeLead(refuses(status, "no key")))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": "plain words"}', "plain words"),
        (b"<h1>Bad gateway</h1>", "<h1>Bad gateway</h1>"),
        (b"", "Bad Gateway"),
        (b"[]", r"\[\]"),
    ],
)
def test_an_error_body_of_any_format_is_readable(body, message):
    with pytest.raises(RejectedError, match=f"answered 502: {message}$"):
        ask(FakeLead(lambda _: httpx.Response(502, content=body)))


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ([], "cut short"),
        ([httpx.ReadError("reset")], "the server was stopped,? or the network failed"),
        ([httpx.RemoteProtocolError("peer closed")], "the server was stopped,? or the network failed"),
        ([httpx.ReadTimeout("timed out")], "stopped sending"),
        ([httpx.DecodingError("no gzip")], r"broke off \(no gzip\)"),
    ],
)
def test_an_answer_that_does_not_come_to_its_end_is_incomplete(errors, words):
    with pytest.raises(IncompleteAnswerError, match=words):
        ask(FakeLead(streams(text_event("Once"), *errors)))


def test_an_answer_without_done_is_complete():
    assert ask(FakeLead(streams(text_event("Hi"), *end_events()[:1]))) == [("Hi", None)]


def hangs_up(request):
    raise httpx.RemoteProtocolError("Server disconnected without sending a response.", request=request)


@pytest.mark.parametrize(
    ("scheme", "words"),
    [("http", "it closed the connection. .* https://"), ("https", "the server was stopped")],
)
def test_https_is_suggested_if_the_server_closes_the_connection_at_once_unless_it_is_in_use(scheme, words):
    with pytest.raises(IncompleteAnswerError, match=f"no answer from {scheme}://lead:5555: {words}"):
        ask(FakeLead(hangs_up), url=f"{scheme}://lead:5555")


@pytest.mark.parametrize(
    "reply",
    [
        lambda _: httpx.Response(200, text="<h1>It works!</h1>"),
        streams(event("no json")),
        streams(event({"choices": "none"})),
    ],
)
def test_a_server_of_another_kind_is_recognized(reply):
    with pytest.raises(IncompleteAnswerError, match="Check --lead"):
        ask(FakeLead(reply))


def test_closing_the_iterator_closes_the_connection():
    stream = Stream([text_event("Once"), text_event(" upon")])
    headers = {"content-type": "text/event-stream"}
    lead = FakeLead(lambda _: httpx.Response(200, headers=headers, stream=stream))
    with lead.client() as client:
        tokens = client.stream(REQUEST, new_answer())
        next(tokens)
        assert not stream.closed
        tokens.close()
        assert stream.closed


NEAR = ("localhost", "127.0.0.1", "[::1]", "192.168.1.20", "[fd00::2]", "100.101.102.103", "desktop")


@pytest.mark.parametrize(
    ("url", "is_used"),
    [
        *((f"https://{near}:5555", False) for near in (*NEAR, "desktop.local")),
        *((f"https://{far}:5555", True) for far in ("8.8.8.8", "[2606:4700::1111]", "lead.example.com")),
        ("http://lead.example.com:5555", False),  # it would see the key
    ],
)
def test_a_proxy_is_used_only_for_other_networks_and_only_with_https(url, is_used, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "http://proxy:3128")
    with FakeLead().client(url=url) as client:
        assert client._http._trust_env is is_used


def speaks_plain(request):
    raise httpx.ConnectError("[SSL: WRONG_VERSION_NUMBER] wrong version number", request=request)


def is_not_trusted(request):
    distrust = ssl.SSLCertVerificationError("self-signed")
    distrust.verify_code, distrust.verify_message = 18, "self-signed certificate"  # as OpenSSL would
    raise httpx.ConnectError("certificate verify failed", request=request) from distrust


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (speaks_plain, "it does not use HTTPS. Write http://"),
        (is_not_trusted, f"{URL} is not trusted: .*--ca-file"),
    ],
)
def test_what_is_wrong_with_tls_is_distinguished_from_an_unreachable_server(reply, words):
    with pytest.raises(UnreachableError, match=words):
        ask(FakeLead(reply))


def test_the_connection_to_a_former_address_is_closed():
    closed = []

    class Transport(httpx.MockTransport):
        def close(self):
            closed.append(self)

    transport = Transport(FakeLead(answers("Hi")))
    found = lambda: ("https://10.0.0.2:5556", None)  # noqa: E731 - short
    with LeadClient(URL, timeout_s=5, transport=transport, locate=found) as client:
        client.locate_again()
        assert (client.url, closed) == ("https://10.0.0.2:5556", [transport])


def test_a_thread_that_asks_while_the_connection_is_closed_gets_an_error_of_its_own():
    with FakeLead(answers("Hi")).client() as client:
        pass
    with pytest.raises(UnreachableError, match="was closed"):
        client.backs()
