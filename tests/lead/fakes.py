"""An engine that answers with scripted tokens, and a lead around it."""

import asyncio
import dataclasses
import functools
import hashlib
from array import array

from starlette.datastructures import State

from lead.backs.registry import Backs
from lead.chat_format.template import ChatTemplate
from lead.disk_cache.act_on_slot import ActOnSlot, SlotActed
from lead.engine.events import Committed, Finished, Ready, Started
from lead.engine.explain import Explain, Explained
from lead.engine_client.engine_state import EngineState
from lead.engine_client.front_vocabulary import FrontVocabulary
from lead.engine_client.sequences import Sequences
from lead.http.images import EncodedImage
from lead.http.json_route import BodyReader
from lead.http.services import Services
from lead.server.app import create_app, open_services
from lead.settings.conversation import ConversationOptions
from lead.settings.lead_settings import LeadSettings
from lead.settings.limits import RequestLimits
from lead.tokenizer.jobs import TokenizerJobs, decode, encode
from lead.tokenizer.request_preparer import RequestPreparer
from shared.errors import RequestError
from shared.image_span import ImageSpan, row_identities
from tests.lead.chat_format.cases import source

N_CTX = 128


class InProcessTokenizer:
    """Does a tokenizer process's work in this process."""

    def __init__(self, vocabulary, template, chat=None, limits=None):
        self._preparer = RequestPreparer(
            vocabulary, template, chat or ConversationOptions(), limits or RequestLimits()
        )

    async def run(self, _client, *job, **options):
        method, *arguments = decode(encode(job))
        return decode(encode(getattr(self._preparer, method.__name__)(*arguments, **options)))

    def vocabulary(self, vocabulary):
        """The front's vocabulary, with all pieces."""
        return FrontVocabulary(
            self._preparer.describe(), vocabulary, lambda: self.run(None, TokenizerJobs.identify)
        )


class FakeImages:
    """Each image is two tokens around three rows, whatever its file contains."""

    max_images = 3

    async def read(self, _client, data):
        key = hashlib.sha256(data).hexdigest()
        span = ImageSpan(start=1, n_rows=3, n_positions=3, key=key)
        tokens = array("i", [5, *row_identities(key, 3), 6])
        return EncodedImage(f"image{key[:32]}", tokens, (span,))


class ScriptedEngine:
    """Commits `steps` to every submission, one per turn of the loop: (tokens, speculation figures) each.

    `hold` stops all steps until `release`. After `pause_after` steps the engine holds by itself, and after
    `dies_after` steps it dies.
    """

    def __init__(self, sequences):
        self.ready = Ready(n_ctx=N_CTX, n_ctx_sequence=N_CTX, n_slots=4, speculates=True)
        self.state = EngineState.READY
        self.steps = []
        self.reason = "stop"
        self.submitted = []
        self.asked = []
        self.replies = {Explain: Explained(report={"policy": "adaptive"}), ActOnSlot: SlotActed()}
        self.cancelled = []
        self.posted = []
        self.connected = []
        self.policy = None
        self.dies_after = None
        self.pause_after = None
        self._sequences = sequences
        self._released = asyncio.Event()
        self._released.set()
        self._running = set()
        self.submission = asyncio.Event()
        self.cancellation = asyncio.Event()

    def wake(self):
        """A sequence is about to come."""

    def hold(self):
        self._released.clear()

    def release(self):
        self._released.set()

    def submit(self, request, *, private=False, changed=None):
        if not self.state.takes_requests:
            raise self.state.refusal()
        sequence = self._sequences.create(request, private=private, changed=changed)
        self.feed()
        return sequence

    def feed(self):
        if self.state is EngineState.RESTARTING:
            return
        for request in self._sequences.take_due():
            self.submitted.append(request)
            self.submission.set()
            task = asyncio.get_running_loop().create_task(self._answer(request))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def cancel(self, sequence):
        if not sequence.ended:
            self._sequences.discard(sequence)
            self.cancelled.append(sequence.id)
            self.cancellation.set()

    def post_draft(self, draft):
        self.posted.append(draft)

    def connect(self, backs):
        self.connected = backs.names
        self.shares_cores = backs.share_cores

    def set_policy(self, policy, depth):
        self.policy = (policy, depth)

    async def ask(self, question):
        """Return the reply to this type of question from `replies`; refuse other questions."""
        self.asked.append(question)
        reply = self.replies.get(type(question), RequestError("no reply to this is scripted"))
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _answer(self, request):
        await self._released.wait()
        start = len(request.text)
        self._sequences.apply(Started(sequence=request.sequence, n_cached=2), 1.0)
        for number, (tokens, figures) in enumerate(self.steps):
            await asyncio.sleep(0)
            if number == self.pause_after:
                self.hold()
            await self._released.wait()
            if number == self.dies_after:
                self._sequences.fail_all("the engine has died")
                return
            step = Committed(sequence=request.sequence, start=start, tokens=tokens, **figures)
            self._sequences.apply(step, 2.0 + number)
            start += len(tokens)
        self._sequences.apply(Finished(sequence=request.sequence, reason=self.reason), 9.0)


@functools.cache
def _application():
    """The application of all tests: FastAPI takes long to examine routes. Each lead replaces its state."""
    return create_app()


class ScriptedLead:
    """A whole lead without the engine and the network."""

    def __init__(self, vocabulary):
        self.now = 0.0
        self.vocabulary = vocabulary
        self.sequences = Sequences(max_restarts=3)
        self.engine = ScriptedEngine(self.sequences)
        self.backs = Backs(
            self.sequences,
            vocabulary.n_tokens,
            post_draft=self.engine.post_draft,
            on_change=self.engine.connect,
            clock=lambda: self.now,
            limits=RequestLimits(),
        )
        self.template = ChatTemplate(vocabulary.info.chat_template, "", "<|im_end|>")
        tokenizer = InProcessTokenizer(vocabulary, self.template)
        self.app = _application()
        self.app.state = State()
        services = Services(
            vocabulary=tokenizer.vocabulary(vocabulary),
            tokenizer=tokenizer,
            engine=self.engine,
            sequences=self.sequences,
            backs=self.backs,
            settings=LeadSettings(alias="toy", tags="small"),
        )
        open_services(self.app, services)
        self.app.state.bodies = BodyReader(RequestLimits())
        self.app.state.is_leaving = False
        self.app.state.with_page = True

    def use(self, template=None, vocabulary=None, **options):
        """Replace some services or options."""
        self.template, self.vocabulary = template or self.template, vocabulary or self.vocabulary
        old = self.app.state.services
        settings = old.settings.model_copy(update=options)
        tokenizer = InProcessTokenizer(self.vocabulary, self.template, settings.conversation, settings.limits)
        services = {"vocabulary": tokenizer.vocabulary(self.vocabulary), "tokenizer": tokenizer}
        self.app.state.services = dataclasses.replace(old, settings=settings, **services)

    def sees(self):
        """Give the model a projector."""
        services = dataclasses.replace(self.app.state.services, images=FakeImages())
        self.app.state.services = services

    def tokens(self, text):
        return self.vocabulary.tokenize(text, add_special=False, parse_special=False)

    def prompt(self):
        """The text of the first prompt that reached the engine."""
        return self.vocabulary.detokenize(self.engine.submitted[0].tokens)

    @property
    def goes_on(self):
        """Return whether the second prompt begins with the first prompt and the tokens of its answer."""
        first, second = (each.tokens for each in self.engine.submitted)
        known = [*first, *(token for tokens, _ in self.engine.steps for token in tokens)]
        return second[: len(known)] == known

    def will_think_and_call(self):
        """Script an answer in more tokens than the text has, for a template that writes calls in tags."""
        self.use(template=ChatTemplate(source("Qwen3.5-4B"), "", "<|im_end|>"))
        ready = self.engine.ready.model_copy(update={"n_ctx": 4096, "n_ctx_sequence": 4096})
        self.engine.ready = ready
        call = (
            "<tool_call>\n<func",
            "tion=add>\n<parameter=a>\nx",
            "y\n</parameter>\n</function>\n</tool_call>",
        )
        self.will_say("Hm", ".", "\n</thi", "nk>\n\n", "I ", "add.", "\n\n", *call)

    def will_say(self, *parts):
        """Script the answer. Each part is a text (one token a step) or (text, figures), all in one step."""
        steps = []
        for part in parts:
            if isinstance(part, str):
                steps += [([token], {}) for token in self.tokens(part)]
            else:
                steps.append((self.tokens(part[0]), part[1]))
        self.engine.steps = steps
