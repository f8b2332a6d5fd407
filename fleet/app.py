"""A fleet on Ray Serve: `serve run fleet.app:app lead="--model big.gguf" backs=2 …`."""

import asyncio
import time
from collections.abc import AsyncIterator

import ray
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.handle import DeploymentHandle

from fleet.back_pool import BackPool
from fleet.forwarding import AnswerHead, ForwardedRequest, LeadGoneError, passed_on
from fleet.lead_replica import LeadReplica
from fleet.lead_router import LeadRouter
from fleet.prefixes import blocks_of
from fleet.settings import FleetSettings

_BUSY = 0.75
"""Of the slots: with more requests than that on average, another lead is started."""
_MOST_WAITING, _MOST_AT_ONCE = 1000, 2000
_PATIENCE_SECONDS, _RETRY_SECONDS = 120.0, 0.2
"""How long a request that has no answer yet looks for a lead that is there."""
_MOST_BYTES = 64 << 20
_METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]

_web = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

Answer = AsyncIterator[AnswerHead | bytes]


async def _rest(head: AnswerHead, answer: Answer) -> AsyncIterator[bytes]:
    """A client that leaves ends the request at the lead."""
    try:
        yield head.first
        async for chunk in answer:
            assert isinstance(chunk, bytes)
            yield chunk
    finally:
        answer.cancel()  # type: ignore[attr-defined]  # Serve's own iterator


@serve.ingress(_web)  # which pickles what the routes refer to, so that stands above
class Ingress:
    """Reads a request whole, which Serve's proxy cannot: a router has to see the prompt."""

    def __init__(self, leads: DeploymentHandle) -> None:
        self._leads = leads.options(method_name="answer", stream=True)

    @_web.api_route("/{path:path}", methods=_METHODS)
    async def forward(self, request: Request) -> Response:
        """The answer of some lead, which also checks the key."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BYTES:
                return JSONResponse({"error": {"message": "the request is too large"}}, 413)
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = passed_on(request.headers.items())
        content = bytes(body)
        return await self._answer(
            ForwardedRequest(request.method, target, headers, content, blocks_of(content))
        )

    async def _answer(self, request: ForwardedRequest) -> Response:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answer = self._leads.remote(request)
            try:
                head = await anext(answer)
                break
            except LeadGoneError as error:
                request = request.without(error.replica)
            except ray.exceptions.RayActorError:
                pass  # Serve knows by now that this replica is gone
            if time.monotonic() > deadline:
                return JSONResponse({"error": {"message": "no lead is there"}}, 503, {"Retry-After": "5"})
            await asyncio.sleep(_RETRY_SECONDS)
        response = StreamingResponse(_rest(head, answer), head.status)
        response.raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in head.headers]
        return response


def app(settings: FleetSettings) -> Application:
    """The deployments and how they know each other."""
    pool = None
    if settings.backs:
        pool = serve.deployment(BackPool, name="BackPool", ray_actor_options={"num_cpus": 0}).bind(settings)
    leads = serve.deployment(
        LeadReplica,
        name="Lead",
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
        max_ongoing_requests=_MOST_AT_ONCE,
        max_queued_requests=_MOST_WAITING,
        ray_actor_options={"num_cpus": 0},
    ).bind(leads)


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
    """With RPC workers a placement group for each lead: its own bundle first, then theirs."""
    lead = {"num_cpus": settings.lead_cpus, "num_gpus": settings.lead_gpus}
    if not settings.rpc_workers:
        return {"ray_actor_options": lead}
    own = {"CPU": settings.lead_cpus} | ({"GPU": settings.lead_gpus} if settings.lead_gpus else {})
    return {
        "ray_actor_options": lead,
        "placement_group_bundles": [own, *[settings.rpc_resources] * settings.rpc_workers],
        "placement_group_strategy": settings.rpc_placement,
    }
