"""A replica of the deployment of leads: owns a `lead` process and forwards requests to it."""

import asyncio
import logging
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import ray
from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fleet.messages import AnswerHead, ForwardedRequest, LeadGoneError
from fleet.settings import FleetSettings
from shared.errors import NotServingError
from shared.next_hop import NextHop, end_to_end_headers
from shared.python_child import ChildProcess, child_command

log = logging.getLogger("ray.serve")

_START_SECONDS = 1800.0
"""A large model takes that long to load from a slow disk."""
_POLL_SECONDS = 0.1
_ANSWER_SECONDS = 5.0
"""The time limit for questions about health and load."""


class RpcWorker:
    """An actor that owns an RPC worker, which computes some layers of one lead's model on another machine.

    Ends with the lead's replica.
    """

    def __init__(self, settings: FleetSettings) -> None:
        is_local = settings.host != "node"
        host = settings.host if is_local else ray.util.get_node_ip_address()
        self._address = f"{host}:{free_port(host)}"
        arguments = [*settings.arguments("rpc_worker"), "--host", host, "--port", self._address.split(":")[1]]
        self._worker = _lead("rpc-worker", *arguments, *(() if is_local else ("--insecure",)))

    def address(self) -> str:
        return self._address


class LeadReplica:
    """Owns a `lead` process.

    Ray Serve calls `check_health`, and `__del__` once no request is left (graceful shutdown).
    """

    def __init__(self, settings: FleetSettings, pool: DeploymentHandle | None) -> None:
        """Returns when the model is loaded; raises RuntimeError."""
        self._settings, self._pool = settings, pool
        self._name = serve.get_replica_context().replica_id.unique_id
        self._rpc_workers: list[Any] = []
        self._registering: asyncio.Task[None] | None = None
        host = ray.util.get_node_ip_address() if settings.host == "node" else settings.host
        port = free_port(host)
        self._url = f"http://{host}:{port}"
        self._lead = _lead(*self._arguments(host, port))
        self._wait_until_ready()
        key = settings.key()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._asking = httpx.AsyncClient(
            base_url=self._url, headers=headers, timeout=_ANSWER_SECONDS, trust_env=False
        )
        self._next_hop = NextHop(max_idle=settings.slots, connect_seconds=_ANSWER_SECONDS)

    async def answer(self, request: ForwardedRequest) -> AsyncIterator[AnswerHead | bytes]:
        """Yield the head of the lead's answer, then its bytes; raises LeadGoneError if there is no head."""
        has_begun = False
        sent = self._next_hop.answer(request.method, self._url, request.target, request.headers, request.body)
        try:
            async with sent as answer:
                has_begun = True
                headers = end_to_end_headers(answer.headers.raw, b"content-length")
                yield AnswerHead(answer.status, headers, answer.first)
                if answer.rest:
                    async for chunk in answer.rest:
                        yield chunk
        except (httpx.TransportError, NotServingError) as error:
            if has_begun:
                raise
            raise LeadGoneError(self._name) from error

    async def check_health(self) -> None:
        """Raise if the lead has ended, so that Serve starts another replica; else report its load to the
        pool.
        """
        if not self._lead.is_running:
            raise RuntimeError(f"the lead of replica {self._name} has ended")
        if self._pool and (self._registering is None or self._registering.done()):
            self._registering = asyncio.get_running_loop().create_task(self._register(self._pool))

    async def _register(self, pool: DeploymentHandle) -> None:
        """A pool that is away, or has no place yet, does not concern the lead's health."""
        try:
            await asyncio.wait_for(pool.register.remote(self._url), _ANSWER_SECONDS)
        except Exception as error:  # noqa: BLE001 - whatever ails the pool
            log.warning("the pool of backs does not answer: %r", error)

    async def record_routing_stats(self) -> dict[str, Any]:
        """Return the lead's load, for the router; empty if the lead does not report it."""
        try:
            response = await self._asking.get("/loads")
            load = response.raise_for_status().json()["loads"][0]
        except (httpx.HTTPError, ValueError, LookupError):
            return {}
        return {"running": load["num_running_reqs"] + load["num_waiting_reqs"], "pid": self._lead.pid}

    def __del__(self) -> None:
        """Requests have ended, or the time that they had is over."""
        if hasattr(self, "_lead"):
            self._lead.stop(self._settings.drain_seconds)
        for worker in self._rpc_workers:
            ray.kill(worker)

    def _arguments(self, host: str, port: int) -> list[str]:
        settings = self._settings
        arguments = [*settings.arguments("lead"), "--host", host, "--port", str(port)]
        arguments += ["--parallel", str(settings.slots), "--print", "none"]
        arguments += ["--max-body-bytes", str(settings.max_body_bytes)]
        if settings.key_file:
            arguments += ["--api-key-file", str(settings.key_file)]
        if settings.rpc_workers:
            arguments += ["--rpc", ",".join(self._start_rpc_workers())]
        return arguments

    def _start_rpc_workers(self) -> list[str]:
        """Start each worker in its own bundle of this replica's placement group; returns their addresses."""
        settings, group = self._settings, get_current_placement_group()
        resources = dict(settings.rpc_resources)
        n_cpus, n_gpus = resources.pop("CPU", 0.0), resources.pop("GPU", 0.0)
        for bundle in range(1, 1 + settings.rpc_workers):
            place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
            worker = ray.remote(RpcWorker).options(
                num_cpus=n_cpus, num_gpus=n_gpus, resources=resources, scheduling_strategy=place
            )
            self._rpc_workers.append(worker.remote(settings))
        return list(ray.get([worker.address.remote() for worker in self._rpc_workers]))

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not _is_healthy(self._url):
            if not self._lead.is_running:
                raise RuntimeError("the lead ended. Read its log")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the lead is not ready after {_START_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
        log.info("lead at %s, process %d", self._url, self._lead.pid)


def _lead(*arguments: str) -> ChildProcess:
    """Return the lead; its log goes to the log of the actor."""
    return ChildProcess(child_command("lead", *arguments), stdout=subprocess.DEVNULL)


def free_port(host: str) -> int:
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=_ANSWER_SECONDS, trust_env=False).is_success
    except httpx.TransportError:
        return False
