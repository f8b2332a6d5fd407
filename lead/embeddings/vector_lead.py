"""A running lead for embeddings: HTTP server and encoder process, from start to an orderly end."""

import asyncio
import logging
import secrets
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from lead.embeddings import model_routes, vector_routes
from lead.embeddings.encoder_messages import LoadEncoder
from lead.embeddings.vector_model import VectorModel, VectorModels, n_layers
from lead.http.application import application, http_options
from lead.http.client_gone import cancel
from lead.rings.table import RINGS
from lead.server.draining import DrainingServer
from lead.server.listening import Address, open_address
from lead.settings.keys import Key, Keyring, Principal, Role
from lead.settings.lead_settings import LeadSettings
from shared.errors import ConfigError
from shared.model_files.file_kind import RANK, parts_of, pooling_of
from shared.seams import plugged

log = logging.getLogger("lead")


class RoutedVectors(Protocol):
    """The data that a router passes to its leads, as `lead.server.server.Routed`."""

    @property
    def listener(self) -> socket.socket: ...

    def keyring(self, own: Iterable[Key]) -> Keyring: ...


class _NoAnswers:
    """The running answers for `DrainingServer`: none, because all requests end by themselves."""

    def __len__(self) -> int:
        return 0

    def fail_all(self, reason: str) -> None: ...


class VectorLead:
    def __init__(self, settings: LeadSettings, path: Path, routed: RoutedVectors | None = None) -> None:
        """Make the lead; raises ConfigError for options that it does not support."""
        _check(settings, path)
        parts_of(path)
        self._settings, self._routed = settings, routed
        load = LoadEncoder(
            path,
            settings.n_threads,
            n_layers(settings.compute.n_gpu_layers),
            settings.vectors.embedding_ctx_size,
        )
        ranks = pooling_of(path) == RANK
        name = settings.aliases("")[0] or None
        model = VectorModel(load, settings, name)
        beside = VectorModels.beside(settings.model_copy(update={"vectors": settings.vectors.located()}))
        self._models = VectorModels(beside.embedder if ranks else model, model if ranks else beside.ranker)
        own = [Key(Principal(Role.BACK, "local"), secrets.token_urlsafe(32))]  # a key that no client knows
        keys = routed.keyring(own) if routed else settings.security.keyring()
        options = http_options(settings, keys)
        options["with_page"] = False
        others = (module.router for module in plugged(RINGS, "side_routes"))
        self.app = application((model_routes.router, *others, vector_routes.router), **options)
        self.app.state.has_metrics = settings.metrics
        if routed:
            from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware  # noqa: PLC0415

            self.app.add_middleware(ProxyHeadersMiddleware, trusted_hosts="*")
        self._models.serve_in(self.app)
        self.app.state.vector_lead = vector_routes.AboutLead(settings, model)
        self._server = DrainingServer(
            self.app, settings, _NoAnswers(), on_drain=lambda: None, on_drained=self._models.end
        )

    async def serve(self) -> None:
        """Serve until a signal; raises ConfigError if it cannot start."""
        if self._routed:
            address = Address(self._routed.listener, is_inherited=True)
        else:
            address = open_address(self._settings)
            log.info("listening on %s://%s, loading the model", self._settings.security.scheme, address)
        starting = asyncio.ensure_future(self._start())
        try:
            if self._routed:  # it accepts connections once it is ready
                await starting
            await self._server.serve(sockets=[address.listener])
        finally:
            await self._models.end()
            await cancel(starting)
        if not starting.cancelled():
            starting.result()

    async def _start(self) -> None:
        try:
            await self._models.start()
        except BaseException:
            self._server.should_exit = True
            raise


def _check(settings: LeadSettings, path: Path) -> None:
    """Raise ConfigError if options ask for another model of the same kind, or for --serve-embeddings."""
    ranks = pooling_of(path) == RANK
    option = "--rerank-model" if ranks else "--embedding-model"
    kind = "reranks texts" if ranks else "embeds texts"
    if settings.vectors.rerank_model if ranks else settings.vectors.embedding_model:
        raise ConfigError(f"{option}: --model {path} {kind}, too. Use only one of them")
    if settings.vectors.serve_embeddings:
        raise ConfigError(
            f"--serve-embeddings needs a text model, but --model {path} {kind}. Leave the option out"
        )
    if settings.drafting.is_wanted or settings.own_back.is_wanted:
        raise ConfigError(f"--model {path} {kind} and is not a text model, so nothing can draft for it")
    if settings.takeover:
        raise ConfigError(f"--takeover: not supported for a --model that {kind}")
