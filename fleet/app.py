"""A fleet on Ray Serve: `serve run fleet.app:app lead="--model big.gguf" backs=2 …`."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import ray
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.handle import DeploymentHandle

from fleet.back_pool import BackPool
from fleet.lead_replica import LeadReplica
from fleet.lead_router import LeadRouter
from fleet.messages import AnswerHead, ForwardedRequest, LeadGoneError
from fleet.prefixes import blocks_of
from fleet.settings import FleetSettings
from shared.next_hop import end_to_end_headers, target_of

_BUSY = 0.75
"""The share of busy slots above which another lead is started."""
_MAX_WAITING, _MAX_AT_ONCE = 1000, 2000
_PATIENCE_SECONDS, _RETRY_SECONDS = 120.0, 0.2
"""The time for which a request without an answer looks for an available lead."""
_LEAD = "Lead"
_LOOK_SECONDS = 1.0
"""The minimum time between questions to Serve about the available leads."""
_SERVING = ("RUNNING", "UPDATING", "RECOVERING", "PENDING_MIGRATION")
"""States of a replica. RECOVERING: Serve's controller is new, not the replica."""
_METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]

_web = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

Answer = AsyncIterator[AnswerHead | bytes]


def _error(status: int, message: str, kind: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error response in the format of a lead's."""
    error = {"message": message, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": error}, status, headers)


def _no_lead() -> Response:
    return _error(503, "no lead is ready: try again in a moment", "unavailable_error", {"Retry-After": "5"})


async def _rest(head: AnswerHead, answer: Answer) -> AsyncIterator[bytes]:
    """Yield a client that leaves ends the request at the lead."""
    try:
        yield head.first
        async for chunk in answer:
            assert isinstance(chunk, bytes)
            yield chunk
    finally:
        answer.cancel()  # type: ignore[attr-defined]  # Serve's own iterator


@serve.ingress(_web)  # which pickles what the routes refer to, so that stands above
class Ingress:
    """Reads a request whole, unlike Serve's proxy: the router needs the prompt."""

    def __init__(self, leads: DeploymentHandle, max_body_bytes: int) -> None:
        self._leads = leads.options(method_name="answer", stream=True)
        self._max_body_bytes = max_body_bytes
        self._app = serve.get_replica_context().app_name
        self._has_lead, self._looked_at = False, -_LOOK_SECONDS

    @_web.api_route("/health", methods=["GET", "HEAD"])
    @_web.api_route("/v1/health", methods=["GET", "HEAD"])
    async def health(self) -> Response:
        """200 if Serve has a replica of the lead that runs, else 503.

        The leads are not asked: each would answer only when it has a free slot.
        """
        now = time.monotonic()
        if now >= self._looked_at + _LOOK_SECONDS:
            self._looked_at = now
            with contextlib.suppress(ray.exceptions.RayError):  # leads do not need Serve's controller
                status = await asyncio.to_thread(serve.status)
                states = status.applications[self._app].deployments[_LEAD].replica_states
                self._has_lead = any(states.get(state) for state in _SERVING)
        return JSONResponse({"status": "ok"}) if self._has_lead else _no_lead()

    @_web.api_route("/{path:path}", methods=_METHODS)
    async def forward(self, request: Request) -> Response:
        """Pass the request to a lead, which also checks the key, and return its answer."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._max_body_bytes:
                message = f"the body has more than {self._max_body_bytes} bytes"
                return _error(413, message, "invalid_request_error")
        target, headers = target_of(request.scope), end_to_end_headers(request.headers.raw, b"content-length")
        content = bytes(body)
        blocks = await asyncio.to_thread(blocks_of, content)
        return await self._answer(ForwardedRequest(request.method, target, headers, content, blocks))

    async def _answer(self, request: ForwardedRequest) -> Response:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answer = self._leads.remote(request)
            try:
                head = await anext(answer)
                break
            except LeadGoneError as error:
                request = replace(request, failed=request.failed | {error.replica})
            except ray.exceptions.RayActorError:
                pass  # Serve knows by now that this replica is gone
            if time.monotonic() > deadline:
                return _no_lead()
            await asyncio.sleep(_RETRY_SECONDS)
        response = StreamingResponse(_rest(head, answer), head.status)
        response.raw_headers = head.headers
        return response


def app(settings: FleetSettings) -> Application:
    pool = None
    if settings.backs:
        pool = serve.deployment(BackPool, name="BackPool", ray_actor_options={"num_cpus": 0}).bind(settings)
    leads = serve.deployment(
        LeadReplica,
        name=_LEAD,
        max_ongoing_requests=settings.slots,
        request_router_config=RequestRouterConfig(
            request_router_class=LeadRouter, request_routing_stats_period_s=1.0
        ),
        health_check_period_s=2.0,
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=settings.drain_seconds,
        **_replicas(settings),
        **_resources(settings),
    ).bind(settings, pool)
    return serve.deployment(
        Ingress,
        max_ongoing_requests=_MAX_AT_ONCE,
        max_queued_requests=_MAX_WAITING,
        ray_actor_options={"num_cpus": 0},
    ).bind(leads, settings.max_body_bytes)


def _replicas(settings: FleetSettings) -> dict[str, object]:
    if settings.max_leads <= settings.min_leads:
        return {"num_replicas": settings.min_leads}
    return {
        "autoscaling_config": AutoscalingConfig(
            min_replicas=settings.min_leads,
            max_replicas=settings.max_leads,
            target_ongoing_requests=_BUSY * settings.slots,
        )
    }


def _resources(settings: FleetSettings) -> dict[str, object]:
    """Return the resources of a replica; with RPC workers a placement group for each lead, its own bundle
    first, then theirs.
    """
    lead = {"num_cpus": settings.lead_cpus, "num_gpus": settings.lead_gpus}
    if not settings.rpc_workers:
        return {"ray_actor_options": lead}
    own = {"CPU": settings.lead_cpus} | ({"GPU": settings.lead_gpus} if settings.lead_gpus else {})
    return {
        "ray_actor_options": lead,
        "placement_group_bundles": [own, *[settings.rpc_resources] * settings.rpc_workers],
        "placement_group_strategy": settings.rpc_placement,
    }
