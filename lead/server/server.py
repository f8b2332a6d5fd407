"""The running lead: HTTP server and engine, from start to an orderly end."""

import asyncio
import contextlib
import faulthandler
import logging
import os
import random
import secrets
import socket
import sys
import threading
import time
from pathlib import Path

from lead.backs.registry import Backs
from lead.backs.vocabulary_offer import VocabularyOffer
from lead.chat.template import ChatTemplate, model_template
from lead.engine.client import EngineClient
from lead.generation.admission import Admission
from lead.generation.printer import Printer
from lead.generation.sequences import Sequences
from lead.http.middleware.hosts import AllowedOrigins
from lead.http.middleware.keys import Key, Principal, Role
from lead.http.middleware.stack import MiddlewareStack
from lead.metrics.exporter import MetricsExporter
from lead.server.app import create_app
from lead.server.draining import DrainingServer
from lead.server.listening import Inheritance, activated_socket, listen, meeting_point, wait_for_heir
from lead.server.local_back import NAME, LocalBack, back_command, back_environment
from lead.server.services import Services
from lead.settings.cache_shares import cache_shares
from lead.settings.lead_settings import LeadSettings
from lead.settings.security import EXPOSED
from lead.tokenizer.job_handler import TokenizerProgram
from lead.tokenizer.pool import TokenizerPool
from shared.discovery import Scheme, announced
from shared.errors import ConfigError
from shared.free_memory import free_memory
from shared.llama.vocabulary import Vocabulary
from shared.tls import check_certificate

log = logging.getLogger("lead")

_END_SECONDS = 30.0
"""For all that comes after the drain, each part of which has a shorter time limit of its own."""


class Lead:
    """Owns the parts and the order in which they start and stop."""

    def __init__(self, settings: LeadSettings) -> None:
        """Raises ConfigError for keys that cannot be read."""
        self._settings = settings
        self._sequences = Sequences(max_restarts=settings.max_restarts)
        self._shares = cache_shares(settings, free_memory())
        self._engine: EngineClient | None = None
        self._backs: Backs | None = None
        self._local_back: LocalBack | None = None
        self._backing: asyncio.Future[None] | None = None
        self._tokenizing: asyncio.Future[None] | None = None
        self._chat_template: str | None = None
        self._server: DrainingServer | None = None
        self._assembled = asyncio.Event()
        self._owns_address = asyncio.Event()
        self._inheritance: Inheritance | None = None
        self._is_activated = False
        self._succession: asyncio.Future[None] | None = None
        self._stopping = threading.Event()
        self._local_key = secrets.token_urlsafe(32)
        security = settings.security
        keys = security.keyring(own=[Key(Principal(Role.BACK, NAME), self._local_key)])
        stack = MiddlewareStack(
            keys, settings.limits, security.host_names(settings.host), AllowedOrigins(security.cors_origins)
        )
        self._app = create_app(stack=stack, with_page=settings.ui)
        if security.ssl_cert_file and security.ssl_key_file:
            check_certificate(security.ssl_cert_file, security.ssl_key_file)

    async def serve(self) -> None:
        """Run until a signal ends it; raises ConfigError if it cannot start, or must not on its address.

        The order of the shutdown:

        1. No new connections are accepted; backs that use POST are disconnected, as they would need them.
        2. Running answers continue for the drain time, with the drafts of the other backs; those that are
           still running then get an error event.
        3. The lead's own back ends, before it notices that the lead is gone.
        4. Connections are closed.
        5. The engine finishes its step and exits.

        Whatever hangs, the process exits with status 1 and a trace _END_SECONDS after the drain time.
        """
        listener = self._listen()
        host, port = listener.getsockname()[:2]
        if not self._settings.security.may_listen_on(host):  # systemd or another lead has chosen it
            listener.close()
            raise ConfigError(f"the lead would listen on {host}: {EXPOSED}")
        scheme: Scheme = "https" if self._settings.security.https else "http"
        address = f"[{host}]" if ":" in host else host
        log.info("listening on %s://%s:%d, loading the model", scheme, address, port)
        if not self._settings.announce:
            await self._serve(listener, host, port)
            return
        path = self._settings.source.model
        name = self._settings.aliases(path.stem if path else "demo")[0]
        announcement = announced(host, port, name, scheme)
        await asyncio.to_thread(announcement.__enter__)
        try:
            await self._serve(listener, host, port)
        finally:
            await asyncio.to_thread(announcement.__exit__, None, None, None)

    def _listen(self) -> socket.socket:
        host, port = self._settings.host, self._settings.port
        if activated := activated_socket(os.environ, os.getpid()):
            self._is_activated = True
            return activated
        if not self._settings.takeover:
            return listen(host, port)
        self._inheritance = Inheritance(meeting_point(host, port))
        return self._inheritance.listener

    async def ready(self) -> Services:
        """The parts, once the model is loaded; waits for ever if `serve` fails before."""
        await self._engine_ready()
        services: Services = self._app.state.services
        return services

    async def _engine_ready(self) -> None:
        await self._assembled.wait()
        assert self._engine
        await self._engine.has_been_ready.wait()

    def stop(self) -> None:
        """End as after a signal."""
        if self._server:
            self._server.should_exit = True

    @property
    def is_stopping(self) -> bool:
        """Whether a signal, `stop` or a failure is ending it."""
        return self._server is not None and self._server.should_exit

    @property
    def has_given_up_back(self) -> bool:
        """Whether its own back cannot draft, and is not started again."""
        return self._backing is not None and self._backing.done()

    async def _serve(self, listener: socket.socket, host: str, port: int) -> None:
        if self._settings.own_back.is_wanted:
            self._local_back = LocalBack(
                back_command(self._settings, host, port),
                random.Random(),  # noqa: S311 - jitter
                environment=back_environment(os.environ, self._local_key, self._shares.back),
            )
        server = self._server = DrainingServer(
            self._app,
            self._settings.drain_seconds,
            self._sequences,
            self._settings.limits,
            on_stopping=self._limit_stopping,
            on_drain=self._disconnect_backs,
            on_drained=self._end_local_back,
            on_started=lambda: self._begin_to_accept(listener, port),
            notice_seconds=self._settings.drain_notice_seconds,
            tls=(self._settings.security.ssl_cert_file, self._settings.security.ssl_key_file),
        )
        running = asyncio.ensure_future(self._run_engine(server))
        try:
            if self._inheritance or self._is_activated:
                await self._wait_until_ready(running)
            await server.serve(sockets=[listener])
        finally:
            self._stopping.set()
            if self._succession:
                self._succession.cancel()
                await asyncio.gather(self._succession, return_exceptions=True)
            await self._end_local_back()
            if self._tokenizing:
                self._tokenizing.cancel()
                await asyncio.gather(self._tokenizing, return_exceptions=True)
            if self._engine:
                await self._engine.stop()
            else:
                running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    async def _wait_until_ready(self, running: asyncio.Future[None]) -> None:
        """A lead that cannot load its model must not replace one that runs, nor answer who can wait.

        Raises what `running` does.
        """
        ready = asyncio.ensure_future(self._engine_ready())
        await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if running.done():
            running.result()

    def _begin_to_accept(self, listener: socket.socket, port: int) -> None:
        self._succession = asyncio.ensure_future(self._follow_succession(listener, port))

    async def _follow_succession(self, listener: socket.socket, port: int) -> None:
        """From one lead on this address to this one, and to the next."""
        if self._inheritance:
            await self._inheritance.take()
        self._owns_address.set()
        assert self._server
        await wait_for_heir(meeting_point(self._settings.host, port), listener, self._server.replace)

    async def _run_engine(self, server: DrainingServer) -> None:
        try:
            path = await asyncio.to_thread(self._settings.model_path, self._stopping.is_set)
            tokenizer = self._start_tokenizer(path)
            vocabulary = await asyncio.to_thread(Vocabulary.load, path)
            self._engine = EngineClient(
                self._settings.load_command(path, self._shares.target, self._shares.draft),
                self._sequences,
                self._settings.log_level,
                log_json=self._settings.log_json,
                timeout=self._settings.engine_timeout,
                sleep_seconds=self._settings.sleep_idle_seconds,
            )
            template, problem = await asyncio.to_thread(model_template, vocabulary, self._chat_template)
            if problem:
                log.warning("%s; using ChatML instead of the model's own", problem)
            services = self._services(vocabulary, template, self._engine, tokenizer)
            self._app.state.services = services
            self._assembled.set()
            if not self._stopping.is_set():
                if self._local_back:
                    # Not before the lead that this one replaces has left the address.
                    may_join = self._owns_address if self._inheritance else self._engine.has_been_ready
                    self._backing = asyncio.ensure_future(self._local_back.run(may_join))
                await self._engine.run(self._sequences, services.backs)
        except BaseException:
            server.should_exit = True
            raise

    def _start_tokenizer(self, path: Path) -> TokenizerPool:
        settings = self._settings
        self._chat_template = settings.conversation.template()
        program = TokenizerProgram(
            model=path,
            chat_template=self._chat_template,
            chat=settings.conversation,
            limits=settings.limits,
            log_level=settings.log_level,
            log_json=settings.log_json,
        )
        tokenizer = TokenizerPool(program)
        self._tokenizing = asyncio.ensure_future(tokenizer.run_processes())
        return tokenizer

    def _services(
        self, vocabulary: Vocabulary, template: ChatTemplate, engine: EngineClient, tokenizer: TokenizerPool
    ) -> Services:
        self._sequences.observe(Printer(vocabulary, self._settings.printing, sys.stdout))
        self._backs = Backs(
            self._sequences,
            vocabulary.identify(),
            vocabulary.n_tokens,
            post_draft=engine.post_draft,
            on_change=engine.connect,
            clock=time.monotonic,
            limits=self._settings.limits,
        )
        return Services(
            vocabulary=vocabulary,
            template=template,
            tokenizer=tokenizer,
            engine=engine,
            sequences=self._sequences,
            backs=self._backs,
            vocabulary_offer=VocabularyOffer(vocabulary),
            admission=Admission(
                self._sequences,
                engine,
                vocabulary,
                private_by_default=self._settings.security.private_by_default,
                max_queue=self._settings.limits.max_queue,
                log_prompts=self._settings.log_prompts,
                context_shift=self._settings.context_shift,
            ),
            settings=self._settings,
            metrics=MetricsExporter(self._sequences, self._backs) if self._settings.metrics else None,
        )

    def _limit_stopping(self) -> None:
        # This timer needs neither the event loop nor the interpreter, which a thread may keep from ending.
        seconds = self._settings.drain_notice_seconds + self._settings.drain_seconds + _END_SECONDS
        faulthandler.dump_traceback_later(seconds, exit=True)

    def _disconnect_backs(self) -> None:
        if self._backs:
            self._backs.disconnect_http()

    async def _end_local_back(self) -> None:
        if self._local_back:
            self._local_back.stop()
        if self._backing:
            await self._backing
