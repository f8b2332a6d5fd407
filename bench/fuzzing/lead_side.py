"""Hostile backs against the lead's own code, in this process: routes, registry, pipe format, engine.

Only sockets and the model are stand-ins.
"""

import asyncio
import contextlib
import json
import random
from typing import Any

import httpx

from bench.fuzzing.local_engine import N_CTX, N_SLOTS, LocalEngine, ManualClock
from bench.fuzzing.mutations import Message, Mutator
from bench.fuzzing.tally import Tally
from bench.hostile import HostileMessages, KnownSequences
from lead.backs import draft_limits, join_limits
from lead.backs.registry import Backs
from lead.chat.template import ChatTemplate
from lead.engine.commands import Submit
from lead.engine.events import Committed, DraftsDropped, Event
from lead.generation.front_vocabulary import FrontVocabulary, KnownPieces
from lead.generation.sequences import LiveSequence, Sequences
from lead.http.services import Services
from lead.server.app import create_app
from lead.settings.conversation import ConversationOptions
from lead.settings.limits import RequestLimits
from lead.tokenizer.request_preparer import RequestPreparer
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target
from shared.protocol import Tune, VocabularyId, Welcome, parse_lead_message
from shared.sampling.parameters import SamplingParameters

PATH = "/v1/speculation"
_N_CONNECTIONS = 3
_MESSAGES_PER_STEP = 16
_BURSTS_PER_POST = 40
_SECONDS_PER_MESSAGE = 0.001
_FORGIVEN_SECONDS = 2000.0
"""More than the longest lockout: the fuzzing goes on at once, by a clock of its own."""


class BackConnection:
    """A back at a WebSocket of the lead's application, without a network.

    Notes what the lead says: whether it is welcome, and how many tokens of which sequences it knows.
    """

    def __init__(self, app: Any, tally: Tally) -> None:
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.inbox.put_nowait({"type": "websocket.connect"})
        self.is_open = True
        self.is_welcome = False
        self.known = KnownSequences()
        self._tally = tally
        scope = {
            "type": "websocket",
            "path": PATH,
            "raw_path": PATH.encode(),
            "query_string": b"",
            "headers": [(b"host", b"lead")],
            "client": ("10.0.0.1", 1),
            "subprotocols": [],
        }
        self.task = asyncio.ensure_future(app(scope, self.inbox.get, self._on_sent))

    def send(self, frame: str | bytes) -> None:
        """One frame of the back."""
        kind = "text" if isinstance(frame, str) else "bytes"
        self.inbox.put_nowait({"type": "websocket.receive", kind: frame})

    def hang_up(self, code: int = 1006) -> None:
        """The connection ends."""
        self.is_open = False
        self.inbox.put_nowait({"type": "websocket.disconnect", "code": code})

    async def _on_sent(self, message: dict[str, Any]) -> None:
        if message["type"] == "websocket.close":
            self._tally.counts[f"closed with {message['code']}"] += 1
            self.hang_up(message["code"])
        elif message["type"] == "websocket.send":
            self._follow(message["text"])

    def _follow(self, text: str) -> None:
        match parse_lead_message(text):
            case Welcome():
                self.is_welcome = True
            case Tune():
                self._tally.counts["tuned"] += 1
            case message:
                self.known.follow(message)


def _known(vocabulary: Vocabulary) -> FrontVocabulary:
    """As the front knows it. No answer is read, so no pieces are needed."""
    template = ChatTemplate(vocabulary.info.chat_template, "", "")
    preparer = RequestPreparer(vocabulary, template, ConversationOptions(), RequestLimits())

    async def identify() -> VocabularyId:
        return preparer.identify()

    return FrontVocabulary(preparer.describe(), KnownPieces(), identify)


class LeadFuzzer:
    """A lead with some sequences, and backs that send it anything."""

    def __init__(self, rng: random.Random, tally: Tally) -> None:
        self._rng = rng
        self._tally = tally
        self._mutator = Mutator(rng)
        self._clock = ManualClock()
        vocabulary = Vocabulary.load(builtin_target())
        self._n_vocab = vocabulary.n_tokens
        self._sequences = Sequences(self._clock)
        self._engine = LocalEngine(self._n_vocab, self._clock, self._sequences)
        self._truth = [int(self._engine.rows.at(position).argmax()) for position in range(N_CTX)]
        self._backs = Backs(
            self._sequences,
            self._n_vocab,
            post_draft=self._engine.post_draft,
            on_change=self._engine.connect,
            clock=self._clock,
            limits=RequestLimits(),
        )
        self._engine.deliver = self._deliver
        engine: Any = self._engine  # in place of an EngineClient
        no_tokenizer: Any = None  # backs send no text
        known = _known(vocabulary)
        services = Services(
            vocabulary=known,
            tokenizer=no_tokenizer,
            engine=engine,
            sequences=self._sequences,
            backs=self._backs,
        )
        self._app = create_app(services)
        self._sequences.observe(self)
        self._connections: list[BackConnection] = []
        self._posting: str | None = None
        self._n_unread = 0  # frames after one for which the lead has closed the connection
        self._messages = HostileMessages(rng, vocabulary.identify(), self._truth)

    async def run(self, n: int) -> None:
        """Send `n` messages."""
        draft_limits.PAUSE_SECONDS = join_limits.REFUSAL_SECONDS = 0.0  # its clock does not wait
        transport = httpx.ASGITransport(self._app, client=("10.0.0.2", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://lead", trust_env=False) as http:
            n_sent = n_bursts = 0
            while n_sent - self._n_unread < n:
                n_bursts += 1
                n_sent += await self._burst()
                if n_bursts % _BURSTS_PER_POST == 0:
                    n_sent += await self._post(http)
                self._tally.note(n_sent - self._n_unread)
        for connection in self._connections:
            connection.hang_up()
            await self._collect(connection)
        self._engine.engine.check_integrity()
        self._tally.note(n)
        self._tally.counts["messages"] += n_sent - self._n_unread

    # An observer of the sequences

    def on_step(self, sequence: LiveSequence, step: Committed) -> None:
        """No back may change a text."""
        right = self._truth[step.start : step.start + len(step.tokens)]
        self._tally.counts["tokens"] += len(step.tokens)
        self._tally.counts["accepted"] += step.n_accepted
        self._tally.counts["changed tokens"] += step.tokens != right
        del sequence

    def on_end(self, sequence: LiveSequence) -> None:
        """It has all its tokens, or was cancelled."""
        self._tally.counts["sequences"] += 1
        del sequence

    # The lead

    def _deliver(self, event: Event) -> None:
        """Pass an event to its listeners like `EngineClient`."""
        match event:
            case DraftsDropped():
                self._backs.count_stale(event.source, event.n_stale)
            case Tune():
                self._backs.tune(event)
            case _:
                self._sequences.apply(event, self._clock())  # type: ignore[arg-type]  # the others are of sequences

    def _begin_sequence(self) -> None:
        prompt = [self._rng.randrange(self._n_vocab) for _ in range(self._rng.choice((1, 3, 40, 300)))]
        sampling = SamplingParameters(seed=self._rng.randrange(1 << 32), temperature=0)
        self._engine.submit(
            Submit(tokens=prompt, sampling=sampling, max_tokens=self._rng.choice((1, 20, 200))),
            private=self._rng.random() < 0.1,  # noqa: PLR2004 - a share
        )

    # Backs at WebSockets

    async def _burst(self) -> int:
        """Some messages, then a step of the engine; returns how many messages."""
        if len(self._sequences) < N_SLOTS + 1:
            self._begin_sequence()
        elif self._rng.random() < 0.001:  # noqa: PLR2004 - a share
            self._engine.cancel(self._rng.choice(list(self._sequences)))
        await self._connect()
        self._clock.now += self._rng.choice((0.0, 1.0, 2.0)) * _SECONDS_PER_MESSAGE * _MESSAGES_PER_STEP
        n_sent = 0
        for _ in range(_MESSAGES_PER_STEP):
            connection = self._rng.choice(self._connections)
            if connection.is_open and connection.is_welcome:
                connection.send(self._messages.frame(connection.known))
                n_sent += 1
        await asyncio.sleep(0)
        self._engine.step()
        for _ in range(3):
            await asyncio.sleep(0)
        return n_sent

    async def _connect(self) -> None:
        """Replace the connections that have ended."""
        for connection in [each for each in self._connections if not each.is_open]:
            self._connections.remove(connection)
            self._n_unread += max(0, connection.inbox.qsize() - 1)  # the last one is that it has ended
            await self._collect(connection)
        while len(self._connections) < _N_CONNECTIONS:
            if self._rng.random() < 0.7:  # noqa: PLR2004 - the others find out what a lockout is
                self._clock.now += _FORGIVEN_SECONDS
            self._connections.append(BackConnection(self._app, self._tally))
            self._connections[-1].send(self._messages.first_frame())
            self._tally.counts["connections"] += 1
        if self._rng.random() < 0.002:  # noqa: PLR2004 - a share
            self._rng.choice(self._connections).hang_up(self._rng.choice((1000, 1001, 1006, 1007, 1009)))

    async def _collect(self, connection: BackConnection) -> None:
        """An exception that leaves the application is a crash."""
        try:
            async with asyncio.timeout(60):
                await connection.task
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            self._tally.counts[f"CRASH {type(error).__name__}: {error}"[:200]] += 1

    # A back that posts

    async def _post(self, http: httpx.AsyncClient) -> int:
        """One POST; returns how many messages it had."""
        known = {sequence.id: len(sequence.tokens) for sequence in self._sequences if not sequence.private}
        messages = [self._messages.draft(known) for _ in range(self._rng.choice((0, 1, 5, 64)))]
        body: Message = {"back": self._posting, "heard": self._rng.choice((None, 0, 1)), "messages": messages}
        if self._posting is None:
            body["messages"] = [self._messages.hello("desk"), *messages[:63]]
        content = json.dumps(body) if self._rng.random() < 0.6 else self._mutator.broken(body)  # noqa: PLR2004 - a share
        if isinstance(content, str):
            content = content.encode("utf-8", "surrogatepass")
        response = await http.post(PATH, content=content, headers={"Content-Type": "application/json"})
        self._tally.counts[f"POST {response.status_code}"] += 1
        if response.is_success:
            with contextlib.suppress(LookupError):
                first = response.json()["messages"][0]
                self._posting = first["back"] if first["type"] == "welcome" else self._posting
                self._posting = None if first["type"] == "refused" else self._posting
        elif response.status_code == httpx.codes.BAD_REQUEST and self._rng.random() < 0.1:  # noqa: PLR2004 - a share
            self._posting = None
            self._clock.now += _FORGIVEN_SECONDS
        return max(1, len(messages))
