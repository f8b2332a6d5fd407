"""Hostile backs against the lead's own code, in this process: routes, registry, pipe format, engine, board.

Only sockets and the model are stand-ins. The model's choice depends on the position alone, so every text is
known before.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import Callable
from typing import Any

import httpx

from bench.fuzzing.mutations import Message, Mutator
from bench.fuzzing.tally import Tally
from bench.replay import ReplayTarget, Rows, Shares
from lead.backs import draft_limits, join_limits
from lead.backs.registry import Backs
from lead.backs.vocabulary_offer import VocabularyOffer
from lead.chat.template import ChatTemplate
from lead.engine.client import EngineState
from lead.engine.commands import (
    Cancel,
    Command,
    PolicyName,
    PostDraft,
    SetBacks,
    SetPolicy,
    Submit,
    decode_command,
    encode_command,
)
from lead.engine.drafters.ngram import NgramDrafter
from lead.engine.engine_limits import EngineLimits
from lead.engine.events import (
    Committed,
    DraftsDropped,
    Event,
    Explained,
    Ready,
    Tuned,
    decode_event,
    encode_event,
)
from lead.engine.loop import Loop
from lead.engine.scheduler import Scheduler
from lead.engine.speculation.manager import SpeculationManager
from lead.generation.admission import Admission
from lead.generation.sequences import LiveSequence, Sequences
from lead.generation.submissions import Submissions
from lead.server.app import create_app
from lead.server.services import Services
from lead.settings.model_names import ModelNames
from lead.tokenizer.jobs import Job
from shared.errors import UnavailableError
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target
from shared.protocol import (
    PROTOCOL_VERSION,
    Close,
    Extend,
    Hello,
    Open,
    Tune,
    Welcome,
    parse_lead_message,
)
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler

_PATH = "/v1/speculation"
_N_SLOTS, _N_CTX = 4, 1024
_N_CONNECTIONS = 3
_MESSAGES_PER_STEP = 16
_BURSTS_PER_POST = 40
_SECONDS_PER_MESSAGE = 0.001
_FORGIVEN_SECONDS = 2000.0
"""More than the longest lockout: the fuzzing goes on at once, by a clock of its own."""
_NAMES = ("desk", "ngram", "lap.top", "a" * 64)


class _Clock:
    """Seconds that pass only when they are told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class _Engine:
    """The engine's loop and the front's client of it, in one process: both ends of the pipe."""

    def __init__(self, n_vocab: int, clock: _Clock, sequences: Sequences) -> None:
        self._submissions = Submissions(sequences, max_restarts=0)
        self.rows = Rows(n_vocab, seed=0)
        self.state = EngineState.READY
        self.ready: Ready | None = Ready(
            n_ctx=_N_CTX, n_ctx_sequence=_N_CTX, n_slots=_N_SLOTS, speculates=True
        )
        self.open = True
        self.deliver: Callable[[Event], None] = lambda _: None
        self._commands: list[bytes] = []
        self._clock = clock
        limits = EngineLimits(n_slots=_N_SLOTS, n_ctx=_N_CTX, n_ctx_sequence=_N_CTX, n_batch=256)
        speculation = SpeculationManager("adaptive", 4, frozenset(), lambda _: {"ngram": NgramDrafter(8)})
        self.scheduler = Scheduler(limits, speculation, self._sampler_for, frozenset())
        target = ReplayTarget(self.rows, n_vocab, 256, Shares())
        self._loop = Loop(target, self.scheduler, speculation, self, clock)

    def step(self) -> None:
        """One step of the loop, unless it would wait for a command."""
        if self._commands or not self.scheduler.idle:
            self._loop.step()

    # What the loop sees

    def drain(self, wait: float | None) -> list[Command]:
        """All commands; time passes while the loop waits."""
        if wait and not self._commands:
            self._clock.now += wait
        lines, self._commands = self._commands, []
        return [decode_command(line) for line in lines]

    def send(self, event: Event) -> None:
        """Through the format of the pipe."""
        self.deliver(decode_event(encode_event(event)))

    # What the front sees

    def feed(self) -> None:
        """Start the sequences that wait for it."""
        self._commands += [encode_command(request) for request in self._submissions.take_due()]

    def cancel(self, sequence_id: str) -> None:
        """Stop a sequence."""
        self._commands.append(encode_command(Cancel(sequence=sequence_id)))

    def post_draft(self, draft: PostDraft) -> None:
        """Pass a draft on."""
        self._commands.append(encode_command(draft))

    def connect(self, names: list[str]) -> None:
        """Set the connected backs."""
        self._commands.append(encode_command(SetBacks(names=names)))

    def set_policy(self, policy: PolicyName, depth: int) -> None:
        """Change the policy."""
        self._commands.append(encode_command(SetPolicy(policy=policy, depth=depth)))

    async def explain(self) -> dict[str, Any] | None:
        """Nothing."""
        return None

    def _sampler_for(self, request: Submit) -> Sampler:
        return Sampler(request.sampling, None, request.tokens)


class _NoTokenizer:
    """Backs send no text."""

    async def run(self, job: Job, client: str) -> Any:
        """Refuse."""
        raise UnavailableError(f"{client} has no tokenizer for {job}")


class _Connection:
    """A back at a WebSocket of the application, without a network."""

    def __init__(self, app: Any, tally: Tally) -> None:
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.inbox.put_nowait({"type": "websocket.connect"})
        self.is_open = True
        self.is_welcome = False
        self.known: dict[str, int] = {}
        self._tally = tally
        scope = {
            "type": "websocket",
            "path": _PATH,
            "raw_path": _PATH.encode(),
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
            case Open(sequence=sequence, tokens=tokens):
                self.known[sequence] = len(tokens)
            case Extend(sequence=sequence, start=start, tokens=tokens):
                self.known[sequence] = start + len(tokens)
            case Close(sequence=sequence):
                self.known.pop(sequence, None)
            case Tune():
                self._tally.counts["tuned"] += 1


class LeadFuzzer:
    """A lead with some sequences, and backs that send it anything."""

    def __init__(self, rng: random.Random, tally: Tally) -> None:
        self._rng = rng
        self._tally = tally
        self._mutator = Mutator(rng)
        self._clock = _Clock()
        vocabulary = Vocabulary.load(builtin_target())
        self._n_vocab = vocabulary.n_tokens
        self._vocabulary = vocabulary.identify()
        self._sequences = Sequences(self._clock)
        self._engine = _Engine(self._n_vocab, self._clock, self._sequences)
        self._truth = [int(self._engine.rows.at(position).argmax()) for position in range(_N_CTX)]
        self._backs = Backs(
            self._sequences,
            self._vocabulary,
            self._n_vocab,
            post_draft=self._engine.post_draft,
            on_change=self._engine.connect,
            clock=self._clock,
        )
        self._engine.deliver = self._deliver
        self._admission = Admission(self._sequences, self._engine, vocabulary)
        services = Services(
            names=ModelNames(("fuzz",), ()),
            vocabulary=vocabulary,
            template=ChatTemplate(vocabulary.info.chat_template, "", ""),
            tokenizer=_NoTokenizer(),
            engine=self._engine,
            sequences=self._sequences,
            backs=self._backs,
            vocabulary_offer=VocabularyOffer(vocabulary),
            admission=self._admission,
        )
        self._app = create_app(services)
        self._sequences.observe(self)
        self._connections: list[_Connection] = []
        self._posting: str | None = None
        self._n_unread = 0  # frames after one for which the lead has closed the connection
        self._last: str | bytes = "{}"

    async def run(self, n: int) -> None:
        """Send `n` messages."""
        draft_limits.PAUSE_SECONDS = join_limits.REFUSAL_SECONDS = 0.0  # its clock does not wait
        transport = httpx.ASGITransport(self._app, client=("10.0.0.2", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://lead") as http:
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
        self._engine.scheduler.check_integrity()
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
        """As `EngineClient` does."""
        match event:
            case DraftsDropped():
                self._backs.count_stale(event.source, event.n_stale)
            case Tuned():
                self._backs.tune(Tune(n_ahead=event.n_ahead, min_confidence=event.min_confidence))
            case Explained():
                pass
            case _:
                self._sequences.apply(event, self._clock())  # type: ignore[arg-type]  # the others are of sequences

    def _begin_sequence(self) -> None:
        prompt = [self._rng.randrange(self._n_vocab) for _ in range(self._rng.choice((1, 3, 40, 300)))]
        sampling = SamplingParameters(seed=self._rng.randrange(1 << 32), temperature=0)
        self._admission.submit(
            prompt,
            sampling,
            self._rng.choice((1, 20, 200)),
            private=self._rng.random() < 0.1,  # noqa: PLR2004 - a share
        )

    # Backs at WebSockets

    async def _burst(self) -> int:
        """Some messages, then a step of the engine; returns how many messages."""
        if len(self._sequences) < _N_SLOTS + 1:
            self._begin_sequence()
        elif self._rng.random() < 0.001:  # noqa: PLR2004 - a share
            self._admission.cancel(self._rng.choice(list(self._sequences)))
        await self._connect()
        self._clock.now += self._rng.choice((0.0, 1.0, 2.0)) * _SECONDS_PER_MESSAGE * _MESSAGES_PER_STEP
        n_sent = 0
        for _ in range(_MESSAGES_PER_STEP):
            connection = self._rng.choice(self._connections)
            if connection.is_open and connection.is_welcome:
                self._last = self._frame(connection.known)
                connection.send(self._last)
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
            self._connections.append(_Connection(self._app, self._tally))
            self._connections[-1].send(self._first_frame())
            self._tally.counts["connections"] += 1
        if self._rng.random() < 0.002:  # noqa: PLR2004 - a share
            self._rng.choice(self._connections).hang_up(self._rng.choice((1000, 1001, 1006, 1007, 1009)))

    async def _collect(self, connection: _Connection) -> None:
        """An exception that leaves the application is a crash."""
        try:
            async with asyncio.timeout(60):
                await connection.task
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            self._tally.counts[f"CRASH {type(error).__name__}: {error}"[:200]] += 1

    # Messages

    def _first_frame(self) -> str | bytes:
        hello = self._hello()
        return json.dumps(hello) if self._rng.random() < 0.95 else self._mutator.broken(hello)  # noqa: PLR2004 - a share

    def _hello(self) -> Message:
        return Hello(
            protocol=PROTOCOL_VERSION,
            name=self._rng.choice(_NAMES),
            vocabulary=self._vocabulary,
            n_ctx=0,
            n_sequences=self._rng.choice((1, 3, 1024)),
        ).model_dump()

    def _frame(self, known: dict[str, int]) -> str | bytes:
        draft = self._draft(known)
        kind = self._rng.random()
        if kind < 0.96:  # noqa: PLR2004 - a share
            return json.dumps(draft, separators=(",", ":"))
        if kind < 0.97:  # noqa: PLR2004 - a share
            return self._last
        if kind < 0.971:  # noqa: PLR2004 - a share
            return json.dumps(draft | {"ignored": [0] * 31_000})
        return self._mutator.broken(draft)

    def _draft(self, known: dict[str, int]) -> Message:
        """Of the right shape, with contents from right to absurd."""
        rng = self._rng
        sequence, n_committed = rng.choice(list(known.items())) if known else ("f" * 32, 10)
        n = rng.choice((1, 1, 2, 4, 8, 8, 16, 64))
        base = max(0, n_committed - rng.choice((0, 0, 0, 1, 2, 5, 63, 64, 65, n_committed)))
        if rng.random() < 0.001:  # noqa: PLR2004 - a share: a hundred of them end a connection
            base = rng.choice((n_committed + 1, (1 << 31) - 1))
        tokens = [self._token(base + i) for i in range(n)]
        draft: Message = {"type": "draft", "sequence": sequence, "base": base, "tokens": tokens}
        if rng.random() < 0.02:  # noqa: PLR2004 - a share
            draft["sequence"] = rng.choice(("unknown", "\x00", "x" * 64))
        if rng.random() < 0.4:  # noqa: PLR2004 - a share
            shape = rng.choice(
                (lambda i: i - 1, lambda _: -1, lambda i: rng.randint(-1, i - 1), lambda i: max(-1, i - 3))
            )
            draft["parents"] = [shape(i) for i in range(n)]
        if rng.random() < 0.7:  # noqa: PLR2004 - a share
            draft["confidences"] = [rng.choice((0.0, 1.0, rng.random(), 5e-324)) for _ in range(n)]
        return draft

    def _token(self, position: int) -> int:
        if self._rng.random() < 0.8:  # noqa: PLR2004 - as a good back
            return self._truth[position % _N_CTX]
        return self._rng.choice((0, self._n_vocab - 1, self._rng.randrange(self._n_vocab)))

    # A back that posts

    async def _post(self, http: httpx.AsyncClient) -> int:
        """One POST; returns how many messages it had."""
        known = {sequence.id: len(sequence.tokens) for sequence in self._sequences if not sequence.private}
        messages = [self._draft(known) for _ in range(self._rng.choice((0, 1, 5, 64)))]
        body: Message = {"back": self._posting, "heard": self._rng.choice((None, 0, 1)), "messages": messages}
        if self._posting is None:
            body["messages"] = [self._hello(), *messages[:63]]
        content = json.dumps(body) if self._rng.random() < 0.6 else self._mutator.broken(body)  # noqa: PLR2004 - a share
        if isinstance(content, str):
            content = content.encode("utf-8", "surrogatepass")
        response = await http.post(_PATH, content=content, headers={"Content-Type": "application/json"})
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
