import json
from collections import Counter

import httpx

from bench.takeover import Clients


def outcome_of(handler):
    clients = Clients("http://lead", 0, 4)
    with httpx.Client(base_url="http://lead", transport=httpx.MockTransport(handler)) as http:
        return clients._ask(http), clients.texts


def test_answers_are_counted_with_their_texts():
    body = {"choices": [{"text": "there was"}]}
    assert outcome_of(lambda _: httpx.Response(200, content=json.dumps(body))) == ("answered", {"there was"})


def test_errors_are_counted_by_their_kind():
    def refuse(_):
        raise httpx.ConnectError("refused")

    outcomes = Counter([outcome_of(refuse)[0], outcome_of(lambda _: httpx.Response(503, text="no"))[0]])
    assert outcomes == {"ConnectError: refused": 1, "503: no": 1}
