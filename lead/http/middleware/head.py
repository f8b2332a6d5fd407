"""HEAD requests."""

from starlette.types import ASGIApp, Receive, Scope, Send


class HeadMiddleware:
    """Answers HEAD wherever GET is answered, for the same keys.

    FastAPI's routes answer only the methods that they name. uvicorn sends no body, as it sees the method that
    the client has sent.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)
