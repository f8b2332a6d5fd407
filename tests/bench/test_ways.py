import json

import httpx
import pytest

from bench.ways import ADAPTIVE, Policy, choose, counters
from shared.errors import ConfigError


def client(handler):
    return httpx.Client(base_url="http://lead", transport=httpx.MockTransport(handler))


def test_the_policy_and_its_depth_are_put():
    asked = []

    def handle(request):
        asked.append((request.method, request.url.path, json.loads(request.content)))
        return httpx.Response(200)

    with client(handle) as http:
        choose(http, Policy("sync", 4))
        choose(http, ADAPTIVE)
    assert asked == [
        ("PUT", "/v1/speculation", {"policy": "sync", "depth": 4}),
        ("PUT", "/v1/speculation", {"policy": "adaptive"}),
    ]


def test_a_policy_that_is_refused_is_an_error():
    with client(lambda _: httpx.Response(400, text="no")) as http, pytest.raises(ConfigError, match="no"):
        choose(http, Policy("bold"))


def test_a_lead_without_counters_is_refused():
    with client(lambda _: httpx.Response(200, json={"backs": []})) as http, pytest.raises(ConfigError):
        counters(http)
