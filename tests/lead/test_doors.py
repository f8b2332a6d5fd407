"""Every door, every method: without a right key nothing reaches a model, an engine or a slot, or changes it.

Each kind of lead gets every method for every path of any lead, and for random paths. Requests have no key, a
wrong key, or the key of each role. Where no key is needed, they also come from a page of another origin.
"""

import itertools
import json
import random
import shutil
from urllib.parse import unquote

import pytest
from fastapi.routing import iter_route_contexts

from lead.embeddings.model_routes import router as vector_router
from lead.http.middleware.auth import OWN_KEYS
from lead.http.page import FILES
from lead.http.routes.models import REASONS
from lead.pairing.pairing_server import PairingServer
from lead.router.memory_need import MemoryNeed
from lead.router.router import Router
from lead.server.app import create_app
from lead.settings.keys import Role
from lead.settings.lead_settings import LeadSettings
from shared.model_files.builtin import builtin_draft
from shared.next_hop import end_to_end_headers
from tests.lead.http.middleware.asgi import asgi_request
from tests.lead.http.middleware.test_auth import ADMINS, CLIENTS, EVERYBODY, KEYS, MAY, bearer, keyring
from tests.lead.pairing.test_pairing_server import Server
from tests.lead.router.conftest import echo
from tests.lead.router.fakes import FakeProcess

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "WEBSOCKET")
OF_THE_ROUTER = ("/models/load", "/models/unload", "/nowhere")
NEAR_MISSES = ("//", "/health/", "/HEALTH", "/v1/join/", "/page", "/page/../v1/members", "/health/../props")


def filled(path):
    """A path with values in place of its parameters."""
    return path.replace("{name:path}", "a").replace("{id_slot}", "0")


ROUTES = {(method, filled(path)) for method, path in MAY}
PATHS = sorted({path for _, path in ROUTES} | {*OF_THE_ROUTER, *NEAR_MISSES})
ASKING = {
    "model": "a",
    "name": "desk",
    "secret": "AAAA",
    "role": "client",
    "open": True,
    "messages": [{"role": "user", "content": "Hi"}],
    "prompt": "Hi",
    "input": "Hi",
    "max_tokens": 1,
    "policy": "off",
}
UNLOADING = {"model": "a", "keep_alive": 0}
FOREIGN = ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}, {"origin": "null"})
OF_OLLAMA = ("pull", "push", "create", "copy", "delete")
OF_VECTORS = {route.path for route in vector_router.routes}
NOT_SUPPORTED = {*REASONS, "/slots", "/metrics", *(f"/api/{name}" for name in OF_OLLAMA), *OF_VECTORS}
QUERIES = (b"", b"model=a", b"model=a&action=erase&reload=1&name=desk")


def known_requests():
    """(method, path, query, content) of all known requests."""
    turns = itertools.cycle(itertools.product(QUERIES, (None, ASKING, UNLOADING)))
    for method, path in itertools.product(METHODS, PATHS):
        yield (method, path, *next(turns))
        if who_may(method, path) == EVERYBODY:
            yield from ((method, path, b"model=a", content) for content in (None, ASKING, UNLOADING))


def random_requests():
    rng = random.Random(7)
    parts = [part for path in PATHS for part in path.split("/")] + ["..", ".", "", "%2e%2e", "é", "x" * 300]
    for _ in range(200):
        path = "/" + "/".join(rng.choice(parts) for _ in range(rng.randrange(1, 5)))
        yield rng.choice(METHODS), unquote(path), rng.choice(QUERIES), rng.choice([None, ASKING, UNLOADING])


def who_may(method, path, *, with_page=True):
    """The roles that may send a request, written independently of the lead's own list."""
    method = "GET" if method == "HEAD" else method
    if method == "POST" and path.startswith("/slots/"):
        return ADMINS
    if path in FILES and not with_page:
        return CLIENTS
    return MAY.get((method, path), CLIENTS)


class House:
    """One kind of lead: how to ask it, and all of its state that a request could change."""

    def __init__(self, app, watch, *, keys=KEYS, state=(), with_page=True, is_router=False):
        self.app, self.keys, self.state, self.with_page = app, keys, state, with_page
        self.watch, self.is_router = watch, is_router

    async def ask(self, request, headers):
        method, path, query, content = request
        content = b"" if content is None else json.dumps(content).encode()
        if content:
            headers = headers | {"content-type": "application/json", "content-length": str(len(content))}
        if method == "WEBSOCKET" or "host" not in headers:
            headers = {"host": "localhost"} | headers
        status, _, _ = await asgi_request(
            self.app, method, path, headers, query=query, content=content, state=self.state
        )
        return status

    async def is_refused(self, request, headers, statuses):
        """Return whether a request gets one of these statuses. Raises AssertionError if it changes state."""
        before = self.watch()
        status = await self.ask(request, headers)
        assert self.watch() == before, (request, headers, status)
        return status in statuses

    def senders(self):
        """The headers and the role of everybody who may send a request."""
        if self.keys:
            yield from ((bearer(secret), role) for role, secret in self.keys.items())
            yield from (({}, None), (bearer("wrong"), None))


async def check_refusals(house, requests):
    for headers, role in house.senders():
        for request in requests:
            allowed = who_may(*request[:2], with_page=house.with_page)
            if role not in allowed:
                assert await house.is_refused(request, headers, {403 if role else 401}), (request, role)
            elif allowed == EVERYBODY:
                assert not await house.is_refused(request, headers, {401, 500}), (request, role)


async def check_pages(house, requests):
    """Check requests of foreign pages, without keys."""
    for headers, request in zip(itertools.cycle(FOREIGN), requests, strict=False):
        is_public = who_may(*request[:2], with_page=house.with_page) == EVERYBODY
        if request[0] == "WEBSOCKET" and "origin" not in headers:
            continue
        assert await house.is_refused(request, headers, {403}) != is_public, (request, headers)


async def check_answers(house, requests):
    """Check that an admin's requests are answered, and never with a fault of the lead's own."""
    headers = bearer(house.keys[Role.ADMIN]) if Role.ADMIN in house.keys else {}
    for request in requests:
        status = await house.ask(request, headers)
        assert status < 500 or status in may_fail(request, is_router=house.is_router), (request, status)


def may_fail(request, *, is_router):
    """The failures that docs/compatibility.md and docs/security.md describe.

    The status is 503 without a model, or for one code too many.
    """
    _, path, query, content = request
    if path in NOT_SUPPORTED or path.startswith("/slots/"):
        return {503} if is_router else {501}
    is_unnamed = is_router and not (query or content)
    return {503} if path == "/v1/join" or is_unnamed else set()


def pairing_server_of(folder):
    """A pairing server whose members have the keys of the tests."""
    pairing = PairingServer(
        folder / "door",
        5556,
        Server(),
        back_command="back",
        listen=lambda host, port: f"{host}:{port}",
        own_addresses=lambda: ["10.0.0.1"],
    )
    pairing.members.identify = keyring().identify
    return pairing


def watch_pairing(app):
    pairing = app.state.pairing
    return pairing and (
        pairing.is_open,
        list(pairing.members),
        pairing.members.n_invited,
    )


@pytest.fixture(params=["plain", "no page", "no keys", "door", "fleet"])
def plain(request, lead, tmp_path):
    """A lead with one model."""
    has_keys = request.param not in {"no keys", "door"}
    with_page = request.param != "no page"
    app = create_app(
        lead.app.state.services,
        keys=keyring() if has_keys or request.param == "door" else None,
        with_page=with_page,
    )
    app.state.pairing = pairing_server_of(tmp_path)
    engine = lead.engine

    def watch():
        counts = len(engine.submitted), len(engine.posted), len(engine.cancelled), len(lead.sequences)
        acted = [question for question in engine.asked if not question.only_looks]
        return counts, acted, engine.policy, engine.connected, watch_pairing(app)

    state = {OWN_KEYS: app.state.pairing} if request.param == "door" else {}
    keys = {} if request.param == "no keys" else KEYS
    return House(
        behind_fleet(app) if request.param == "fleet" else app,
        watch,
        keys=keys,
        state=state,
        with_page=with_page,
    )


def behind_fleet(app):
    """An application whose requests come as to the leads of a fleet, which check them."""

    async def ingress(scope, receive, send):
        await app(scope | {"headers": end_to_end_headers(scope["headers"])}, receive, send)

    return ingress


@pytest.fixture
async def routers(tmp_path):
    """Starts a lead with --models-dir and fake models."""
    started = []
    for name in "ab":
        shutil.copy(builtin_draft(), tmp_path / f"{name}.gguf")
    keys_file = tmp_path / "keys"
    keys_file.write_text("\n".join(f"{role.value} x {secret}" for role, secret in KEYS.items()))

    def start(kind):
        has_keys = kind in {"keys", "keys and no page"}
        options = {"keys_file": keys_file} if has_keys else {}
        router = Router(LeadSettings.from_options(models_dir=tmp_path, ui="no page" not in kind, **options))
        started.append(router)
        host, n_started, n_scans = router._host, [], []

        async def spawn():
            n_started.append(1)
            return FakeProcess(echo())

        async def measure(*_):
            return MemoryNeed(sizes={"CPU": 1})

        find = router._find
        router._find = lambda: n_scans.append(1) or find()
        host._spawn, host._measure_need, host._prepares = spawn, measure, False
        router.app.state.pairing = pairing_server_of(tmp_path)

        def watch():
            known = repr(host.pool), len(host._tasks), list(host.models)
            return known, len(n_started), len(n_scans), len(router._forwarder), watch_pairing(router.app)

        state = {OWN_KEYS: router.app.state.pairing} if kind == "door" else {}
        keys = {} if kind == "no keys" else KEYS
        return House(
            router.app, watch, keys=keys, state=state, with_page="no page" not in kind, is_router=True
        )

    yield start
    for router in started:
        await router._host.stop()
        await router._forwarder.close()


RANDOM = [*random_requests()]
REQUESTS = [*known_requests(), *RANDOM]
OF_THE_PAGE = [*(request for request in REQUESTS if request[1] in FILES), *RANDOM]
"""The requests that a lead without the page answers in another way, and random requests."""
TO_ROUTES = [*(request for request in REQUESTS if request[:2] in ROUTES), *RANDOM]
"""Requests to routes, and random ones. A router passes all others on. A lead with one model has no others."""


async def test_every_path_of_a_router_is_asked(routers):
    """test_auth.py's table has the paths of a lead with one model."""
    paths = {context.path for context in iter_route_contexts(routers("no keys").app.routes)}
    assert {filled(path) for path in paths} <= {*PATHS, "/{path:path}"}


async def check(house, caplog):
    requests = REQUESTS if house.with_page else OF_THE_PAGE
    await (check_refusals if house.keys else check_pages)(house, requests)
    await check_answers(house, [each for each in requests if house.is_router or each in TO_ROUTES])
    assert not [record for record in caplog.records if record.exc_info]


async def test_nothing_gets_into_a_lead_without_a_right_key(plain, caplog):
    await check(plain, caplog)


@pytest.mark.parametrize("kind", ["keys", "keys and no page", "no keys", "door"])
async def test_nothing_gets_into_a_router_without_a_right_key(routers, kind, caplog):
    await check(routers(kind), caplog)
