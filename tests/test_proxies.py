"""Clients of this project that follow HTTP_PROXY and similar variables: checked on the source."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARTS = ("lead", "back", "chat", "fleet", "shared", "lab", "docs", "docker", "deploy", "models")
ASKS = {"httpx": {"get", "post", "put", "patch", "delete", "request", "stream", "Client", "AsyncClient"}}
"""Functions and classes of a module that follow the variables unless `trust_env` is false."""
BY_PERSONS = {"chat/client.py", "shared/model_files/hub.py"}
"""chat decides by the address (tests/chat/test_client.py). The hub's downloads follow the variables."""


def dialling(tree):
    """Names under which a module connects WebSockets: `connect`, and classes that inherit it."""
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("websockets.")
        for alias in node.names
        if alias.name == "connect"
    }
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return names | {each.name for each in classes if names & {ast.unparse(base) for base in each.bases}}


def needed(call, dials):
    """The argument without which a call follows the variables; None if it does not connect to anything."""
    match call.func:
        case ast.Attribute(ast.Name(module), name) if name in ASKS.get(module, ()):
            return "trust_env"
        case ast.Name(name) if name in dials:
            return "proxy"
        case ast.Name("LocalTransport") | ast.Attribute(attr="HTTPTransport" | "AsyncHTTPTransport"):
            return "trust_env"
        case ast.Attribute(attr="urlopen") | ast.Name("urlopen"):
            return "never: build_opener(ProxyHandler({}))"
    return None


def following(source):
    """Lines whose client may follow the variables."""
    tree = ast.parse(source)
    dials = dialling(tree)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and (name := needed(call, dials)):
            given = {each.arg: ast.unparse(each.value) for each in call.keywords}
            if given.get(name) not in ("False", "None"):
                yield call.lineno, ast.unparse(call.func)


def test_only_chat_and_downloads_may_follow_the_proxy_variables():
    found = {
        path.relative_to(ROOT).as_posix(): told
        for part in PARTS
        for path in (ROOT / part).rglob("*.py")
        if (told := list(following(path.read_text())))
    }
    assert {name for name, told in found.items() if told} <= BY_PERSONS, found


def test_each_way_to_connect_is_seen():
    assert len(list(following(NAIVE))) == 6


NAIVE = """
import httpx, urllib.request
from websockets.asyncio.client import connect
class Mine(connect):
    pass
httpx.get("http://127.0.0.1")
httpx.AsyncClient(transport=LocalTransport())
connect("ws://127.0.0.1")
Mine("ws://127.0.0.1", proxy=True)
urllib.request.urlopen("http://127.0.0.1")
httpx.get("http://127.0.0.1", trust_env=False)
"""
