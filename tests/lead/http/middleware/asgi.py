"""Asks an application for a route without a network, a client library or a body."""


async def asgi_request(app, method, path, headers=(), *, query=b"", content=b"", state=()):
    """(status, headers, body) of the answer; for a WebSocket 101 if it is accepted, 404 if there is none.

    state: the state of the request, as its listener sets it.
    """
    is_websocket = method == "WEBSOCKET"
    prefix = "websocket." if is_websocket else ""
    given = {"host": "lead", **dict(headers)}
    scope = {
        "type": "websocket" if is_websocket else "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "ws" if is_websocket else "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "extensions": {"websocket.http.response": {}},
        "subprotocols": [],
        "state": dict(state),
    }
    incoming = (
        [{"type": "websocket.connect"}]
        if is_websocket
        else [{"type": "http.request", "body": content, "more_body": False}]
    )
    sent = []

    async def receive():
        return incoming.pop(0) if incoming else {"type": f"{scope['type']}.disconnect", "code": 1000}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    if sent[0]["type"] == "websocket.accept":
        return 101, {}, b""
    if sent[0]["type"] == "websocket.close":  # the router's answer where there is no such WebSocket
        return 404, {}, b""
    assert sent[0]["type"] == f"{prefix}http.response.start", sent
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    body = b"".join(message["body"] for message in sent[1:] if message["type"].endswith("http.response.body"))
    return sent[0]["status"], headers, body
