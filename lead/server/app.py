"""The lead's HTTP application: routes, middlewares and error shapes."""

from fastapi import FastAPI, Request
from fastapi.responses import Response

from lead.http import error_responses, page
from lead.http.json_route import BodyReader
from lead.http.middleware.stack import MiddlewareStack
from lead.http.routes import chat, completions, models, monitoring, speculation, tokens
from lead.http.sse import ClientGoneError
from lead.server.services import Services

_CLIENT_CLOSED_REQUEST = 499  # nginx's code, for the log: the response is not read


def create_app(
    services: Services | None = None, stack: MiddlewareStack | None = None, *, with_page: bool = True
) -> FastAPI:
    """The application. Until `app.state.services` is set, /health and all else answer 503."""
    stack = stack or MiddlewareStack()
    app = FastAPI(
        title="llama-duo",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect is written from the Host header, which a client chooses
        middleware=stack.middlewares(),
    )
    app.state.services = services
    app.state.is_leaving = False
    app.state.bodies = BodyReader(stack.limits)
    error_responses.install(app)

    async def on_gone(_: Request, _error: Exception) -> Response:
        return Response(status_code=_CLIENT_CLOSED_REQUEST)

    app.add_exception_handler(ClientGoneError, on_gone)
    for module in (chat, completions, tokens, models, monitoring, speculation):
        app.include_router(module.router)
    if with_page:
        app.include_router(page.router)
    return app
