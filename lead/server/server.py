"""The running lead: HTTP server and engine, from start to an orderly end."""

import asyncio
import contextlib
import faulthandler
import logging
import random
import secrets
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from fastapi import FastAPI

from lead.backs.registry import Backs
from lead.engine_client.engine_client import DraftReports, EngineClient
from lead.engine_client.front_vocabulary import FrontVocabulary
from lead.engine_client.printer import Printer
from lead.engine_client.sequences import Sequences
from lead.engine_client.terminal_writer import TerminalWriter, stderr_through
from lead.http.application import http_options, shows_answers
from lead.http.client_gone import cancel
from lead.http.images import ImageReader
from lead.http.services import Services
from lead.rings.table import RINGS
from lead.server.app import create_app, open_services
from lead.server.draining import DrainingServer
from lead.server.listening import Address, hand_over, open_address, takeover_path
from lead.server.local_back import NAME, LocalBack, back_command, back_environment, invite_command, local_url
from lead.server.site import Companion, Site, companions_of, end_all, how_to_ask, wants_backs
from lead.settings.cache_shares import cache_shares
from lead.settings.keys import Key, Keyring, Principal, Role
from lead.settings.lead_settings import LeadSettings
from lead.tokenizer.fair_queue import Client
from lead.tokenizer.jobs import TokenizerJobs
from lead.tokenizer.pool import TokenizerPool
from lead.tokenizer.tokenizer_program import TokenizerProgram
from shared.errors import ConfigError
from shared.free_memory import free_memory
from shared.logs import configure_logging
from shared.model_files.builtin import short_name
from shared.python_child import child_environment
from shared.seams import plugged

log = logging.getLogger("lead")

_END_SECONDS = 30.0
"""The time limit for the steps after the drain, each of which has a shorter limit."""


class Routed(Protocol):
    """The data that a router passes to a lead that it runs."""

    @property
    def listener(self) -> socket.socket: ...

    def keyring(self, own: Iterable[Key]) -> Keyring:
        """Return the keys that the lead accepts: the router's, and the keys `own`, which are for the lead's
        own use.
        """


class Lead:
    """The program of a lead with one model."""

    def __init__(self, settings: LeadSettings, routed: Routed | None = None) -> None:
        """Read the keys; raises ConfigError. routed: serve one model for a router."""
        self._settings = settings
        self._routed = routed
        self._sequences = Sequences(max_restarts=settings.max_restarts)
        self._writer = TerminalWriter(sys.stdout)
        self._shows_answers = shows_answers(settings)
        self._shares = cache_shares(settings, free_memory())
        self._local_key = secrets.token_urlsafe(32)
        self._app = self._create_app()
        self._server = DrainingServer(
            self._app,
            settings,
            self._sequences,
            on_stopping=self._limit_stopping,
            on_drain=self._disconnect_backs,
            on_drained=self._end_local_back,
        )
        self._engine: EngineClient | None = None  # None: the vocabulary has not been read yet
        self._local_back: LocalBack | None = None  # None: not wanted
        self._ready = asyncio.Event()  # set when the engine is ready for the first time; never cleared
        self._owns_address = asyncio.Event()  # set when no other lead accepts connections at the address
        self._stopping = threading.Event()

    async def serve(self) -> None:
        """Serve until a signal; raises ConfigError if it cannot start, or must not listen on its address.

        The order of the shutdown:

        1. No new connections are accepted; backs that use POST are disconnected, as they would need new ones.
        2. Running answers continue for the drain time, with the drafts of the other backs; then all
        unfinished answers get an error event. 3. The lead's own back ends, before it notices that the lead is
        gone. 4. Connections are closed. 5. The engine finishes its step and exits; then the tokenizer's
        processes end.

        If anything hangs, the process exits _END_SECONDS after the drain time, with status 1 and a trace.
        """
        if self._routed:
            await self._serve(Address(self._routed.listener, is_inherited=True))
            return
        address = open_address(self._settings)
        log.info("listening on %s://%s, loading %s", self._settings.security.scheme, address, self._name)
        with self._log_beside_answers():
            await self._serve(address)

    async def ready(self) -> Services:
        """Return the services once the model is loaded; waits for ever if `serve` fails before."""
        await self._ready.wait()
        services: Services = self._app.state.services
        return services

    def stop(self) -> None:
        self._server.should_exit = True

    @property
    def is_stopping(self) -> bool:
        """True if a signal, `stop` or a failure is ending the lead."""
        return self._server.should_exit

    @property
    def has_given_up_back(self) -> bool:
        """True if the lead's own back cannot draft, and is not restarted."""
        return self._local_back is not None and self._local_back.ended.is_set()

    @contextlib.contextmanager
    def _log_beside_answers(self) -> Iterator[None]:
        """While this context lasts, the log of all processes cuts no line of an answer on the terminal."""
        settings = self._settings
        if not self._shows_answers:
            yield
            return
        try:
            with stderr_through(self._writer):
                configure_logging(settings.log_level, as_json=settings.log_json)
                yield
        finally:
            configure_logging(settings.log_level, as_json=settings.log_json)

    def _create_app(self) -> FastAPI:
        own = [Key(Principal(Role.BACK, NAME), self._local_key)]
        keys = (self._routed or self._settings.security).keyring(own)
        app = create_app(**http_options(self._settings, keys))
        if self._routed:  # the router, whose key every request needs, names the client
            from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware  # noqa: PLC0415

            app.add_middleware(ProxyHeadersMiddleware, trusted_hosts="*")
        return app

    async def _serve(self, address: Address) -> None:
        # 1. Start everything: a lead that is run by a router has no companions, as the router has them.
        companions = [] if self._routed else companions_of(self._site(address))
        if self._settings.own_back.is_wanted:
            self._local_back = LocalBack(
                back_command(self._settings, address.host, address.port),
                random.Random(),  # noqa: S311 - jitter
                environment=back_environment(
                    child_environment(),
                    self._local_key,
                    self._shares.back,
                    needs_gpu=self._settings.own_back.back_gpu_layers != 0,
                ),
            )
        running = asyncio.ensure_future(self._run_engine(address))
        starting = asyncio.ensure_future(self._start(companions))
        # 2. Serve until a signal; on a socket that others use, only once the model is loaded.
        async with _in_background(self._run_local_back(address)):
            try:
                if address.is_inherited:
                    await self._wait_until_ready(running)
                async with _in_background(self._pass_address_on(address)):
                    await self._server.serve(sockets=[address.listener])
            finally:
                # 3. End everything, the engine last (see `serve`).
                self._stopping.set()
                starting.cancel()
                await end_all(companions)
                await self._end_local_back()
                if self._engine:
                    self._engine.stop()
                else:
                    running.cancel()
                for ended in (running, starting):
                    with contextlib.suppress(asyncio.CancelledError):
                        await ended

    def _site(self, address: Address) -> Site:
        return Site(self._app, self._server, self._settings, address, self._name)

    @property
    def _name(self) -> str:
        """The name of the model before its file is read."""
        path = self._settings.source.model
        return self._settings.aliases((short_name(path) or path.stem) if path else "demo")[0]

    async def _start(self, companions: Sequence[Companion]) -> None:
        await self._owns_address.wait()  # the lead before this one has left the port
        try:
            for companion in companions:
                await companion.start()
        except BaseException:
            self.stop()
            raise

    async def _wait_until_ready(self, running: asyncio.Future[Any]) -> None:
        """Wait until the model is loaded; raises the errors of `running`.

        A lead that cannot load its model must not replace a running lead, nor answer clients that can wait.
        """
        ready: asyncio.Future[Any] = asyncio.ensure_future(self._ready.wait())
        await asyncio.wait([ready, running], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if running.done():
            running.result()

    async def _pass_address_on(self, address: Address) -> None:
        """Take over the address from the lead before this one, and later pass it on to the next."""
        await self._server.accepting.wait()
        if address.predecessor:
            await address.predecessor.replace()
        self._owns_address.set()
        if self._routed:
            return
        await hand_over(
            takeover_path(self._settings.host, address.port), address.listener, self._server.replace
        )

    async def _run_local_back(self, address: Address) -> None:
        if self._local_back:
            # The back waits until the lead that this one replaces has left the address.
            await self._local_back.run(self._owns_address if address.predecessor else self._ready)

    async def _end_local_back(self) -> None:
        if self._local_back:
            self._local_back.stop()
            await self._local_back.ended.wait()

    async def _run_engine(self, address: Address) -> None:
        settings = self._settings
        try:
            path = settings.model_path
            if settings.source.model is None:
                log.info("no --model is set: serving the built-in demo model, which tells short stories")
            chosen = settings.conversation.template()
            program = TokenizerProgram(
                model=path,
                chat_template=chosen,
                chat=settings.conversation,
                limits=settings.limits,
                log_level=settings.log_level,
                log_json=settings.log_json,
            )
            tokenizer, images = TokenizerPool(program), _image_reader(settings, path)
            seeing = images.run() if images else _nothing()
            async with _in_background(tokenizer.run_processes()), _in_background(seeing):
                load = settings.load_command(path, self._shares.target, self._shares.draft)
                if images:
                    load = load.model_copy(update={"images": await images.memory()})
                self._engine = engine = EngineClient(
                    load,
                    self._sequences,
                    settings.log_level,
                    share_grammars=tokenizer.share,
                    log_json=settings.log_json,
                    max_queue=settings.limits.max_queue,
                    timeout=settings.engine_timeout,
                    sleep_seconds=settings.sleep_idle_seconds,
                    on_sleep=tokenizer.rest,
                )
                # requests are taken as soon as the vocabulary is read, while the engine still loads
                if not self._stopping.is_set():
                    opening = asyncio.ensure_future(self._open_services(engine, tokenizer, images))
                    ready = self._note_ready(engine, opening, address)
                    async with _in_background(ready), _in_background(opening):
                        await engine.run(opening)
        except BaseException:
            self.stop()
            raise

    async def _open_services(
        self, engine: EngineClient, tokenizer: TokenizerPool, images: ImageReader | None
    ) -> DraftReports:
        own = Client("lead")
        model = await tokenizer.run(own, TokenizerJobs.describe)
        if model.problem:
            log.warning("%s; using ChatML instead", model.problem)
        vocabulary = FrontVocabulary(model, engine.pieces, lambda: tokenizer.run(own, TokenizerJobs.identify))
        services = self._services(vocabulary, engine, tokenizer, images)
        open_services(self._app, services)
        return services.backs

    async def _note_ready(
        self, engine: EngineClient, opening: asyncio.Future[DraftReports], address: Address
    ) -> None:
        await asyncio.shield(opening)
        await engine.has_been_ready.wait()
        self._ready.set()
        if not self._routed:
            self._say_what_to_do(address)

    def _say_what_to_do(self, address: Address) -> None:
        """Log where to ask, and how another machine can draft if no back is known."""
        if wants_backs(self._app, self._settings):
            url = local_url(address.host, address.port, tls=self._settings.security.https)
            log.info("no back is connected. To add a second machine, run `%s`", invite_command(url))
        log.info("%s", how_to_ask(self._settings, address))

    def _services(
        self,
        vocabulary: FrontVocabulary,
        engine: EngineClient,
        tokenizer: TokenizerPool,
        images: ImageReader | None,
    ) -> Services:
        self._sequences.observe(Printer(vocabulary, self._settings.printing, self._writer))
        backs = Backs(
            self._sequences,
            vocabulary.n_tokens,
            post_draft=engine.post_draft,
            on_change=engine.connect,
            clock=time.monotonic,
            limits=self._settings.limits,
        )
        return Services(
            vocabulary=vocabulary,
            tokenizer=tokenizer,
            engine=engine,
            sequences=self._sequences,
            backs=backs,
            settings=self._settings,
            images=images,
        )

    def _limit_stopping(self) -> None:
        # This timer needs neither the event loop nor the interpreter, which a thread may keep from ending.
        seconds = self._settings.drain_notice_seconds + self._settings.drain_seconds + _END_SECONDS
        with contextlib.suppress(RuntimeError):  # no more threads here: end without the limit
            # Where answers are shown, stderr goes through a thread, which may not run any more.
            out = self._writer.out if self._shows_answers else sys.stderr
            faulthandler.dump_traceback_later(seconds, exit=True, file=out)

    def _disconnect_backs(self) -> None:
        services: Services | None = self._app.state.services
        if services:
            services.backs.disconnect_http()


def _image_reader(settings: LeadSettings, model: Path) -> ImageReader | None:
    """Return the image reader of the model, if it has a projector; raises ConfigError."""
    if settings.images.mmproj is None:
        return None
    for module in plugged(RINGS, "image_reader"):
        reader: ImageReader = module.image_reader(settings, model)
        return reader
    raise ConfigError("--mmproj: this lead was installed without support for images (lead.images)")


async def _nothing() -> None:
    """Do nothing: without images there is nothing to run."""


@contextlib.asynccontextmanager
async def _in_background(work: Awaitable[Any]) -> AsyncIterator[None]:
    """Do `work` while the context lasts, and cancel it at the end."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        await cancel(task)
