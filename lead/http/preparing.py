"""From a handler to the tokenizer processes."""

from typing import Any

from fastapi import Request

from lead.http.json_route import client_of
from lead.http.sse import unless_gone
from lead.server.services import Services
from lead.tokenizer.jobs import Job


async def prepare(job: Job, http_request: Request, services: Services) -> Any:
    """What a tokenizer process makes of `job`.

    Raises RequestError, UnavailableError, and ClientGoneError if the client leaves, which stops the job.
    """
    return await unless_gone(http_request, services.tokenizer.run(job, client_of(http_request)))
