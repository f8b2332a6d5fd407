"""Requests that the API's description (OpenAPI) allows or forbids are answered. None makes the lead fail.

schemathesis makes requests from the description: valid ones, invalid ones, and requests with the needed
fields that have any values in the other fields.
"""

from http import HTTPStatus

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded

from lead.server.app import create_app

N_REQUESTS = settings.default.max_examples // 6
ALLOWED = {HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.SERVICE_UNAVAILABLE}
"""The status if something is unavailable: metrics that are not enabled, an engine that is loading."""

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
NEEDED = {
    "/v1/chat/completions": CHAT,
    "/v1/chat/completions/input_tokens": CHAT,
    "/v1/messages": CHAT | {"max_tokens": 8},
    "/v1/messages/count_tokens": CHAT,
    "/v1/responses": {"input": "Hi"},
    "/v1/responses/input_tokens": {"input": "Hi"},
    "/v1/completions": {"prompt": "Hi"},
    "/completion": {"prompt": "Hi"},
    "/infill": {"input_prefix": "Hi", "input_suffix": "!"},
    "/v1/embeddings": {"input": "Hi"},
    "/v1/rerank": {"query": "Hi", "documents": ["Hi"]},
    "/apply-template": CHAT,
    "/api/chat": CHAT,
    "/api/generate": {"prompt": "Hi"},
    "/api/show": {"model": "toy"},
    "/v1/invitations": {"addresses": [], "role": "back"},
    "/v1/join": {"secret": "AAAA", "name": "laptop"},
    "/v1/members": {"name": "app"},
    "/slots/{id_slot}": {"filename": "talk"},
    "/tokenize": {"content": "Hi"},
    "/detokenize": {"tokens": [1]},
}
"""The fields that each request to a path needs, by path."""


@pytest.fixture(scope="module")
def operations():
    """All operations in the API's description."""
    import schemathesis  # noqa: PLC0415 - takes a second of each worker that collects tests

    description = schemathesis.openapi.from_dict(create_app().openapi())
    return [result.ok() for result in description.get_all_operations()]


def made(operation, mode):
    """Up to N_REQUESTS cases, the same each time."""
    from schemathesis import GenerationMode  # noqa: PLC0415 - as above

    cases = []

    @seeded(1)
    @settings(max_examples=N_REQUESTS, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=GenerationMode[mode]))
    def collect(case):
        cases.append(case)

    collect()
    return cases


def completed(case, needed):
    """A request with the needed fields, and the other fields of `case`."""
    if isinstance(case.body, dict):
        case.body = {**case.body, **needed}
    return case


async def ask(client, case):
    """The whole answer to the request of `case`."""
    prepared = requests.Request(**case.as_transport_kwargs(base_url="http://lead")).prepare()
    body = prepared.body.encode() if isinstance(prepared.body, str) else prepared.body
    # latin-1 is how HTTP's libraries put any bytes into a header
    headers = {name: value.encode("latin-1") for name, value in prepared.headers.items()}
    return await client.request(prepared.method, prepared.url, headers=headers, content=body)


async def failures(client, cases):
    """The requests that are answered with a fault of the lead's own."""
    assert cases
    told = []
    for case in cases:
        answer = await ask(client, case)
        is_allowed = answer.is_success or answer.is_client_error or answer.status_code in ALLOWED
        if not is_allowed or '"server_error"' in answer.text:  # in a stream, behind a good status
            told.append(f"{case.method} {case.path} {case.query} {case.body}: {answer.text}")
    return told


@pytest.fixture(autouse=True)
def _answering(lead):
    lead.will_say("one two")


async def test_what_is_described_is_answered(client, operations):
    failed = []
    for operation in operations:
        cases = made(operation, "POSITIVE")
        failed += await failures(client, cases)
        if needed := NEEDED.get(operation.path):
            failed += await failures(client, [completed(case, needed) for case in cases])
    assert not failed


async def test_what_is_not_is_a_clients_error(client, operations):
    failed = []
    for operation in operations:
        if operation.body or operation.query:
            failed += await failures(client, made(operation, "NEGATIVE"))
    assert not failed


def test_every_operation_that_needs_a_body_is_asked_well(operations):
    """Add the fields that a new operation needs to NEEDED."""
    asked = {f"POST {path}" for path in NEEDED}
    needing = {f"{each.method.upper()} {each.path}" for each in operations if each.body}
    assert needing - asked == {"PUT /v1/speculation", "POST /v1/speculation"}
