"""HTTP to a process that may be killed at any moment."""

import httpx


class LocalTransport(httpx.AsyncHTTPTransport):
    """httpx's transport, which lets an error of anyio through: then a request is not known to have failed.

    Once connected, anyio asks the socket for its peer's name, and with uvloop there is no socket any more if
    the peer has closed it by then.
    """

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises TransportError in that case, too."""
        try:
            return await super().handle_async_request(request)
        except AttributeError as error:
            raise httpx.ConnectError("the connection was closed as soon as it was made") from error
