"""The real engine around the toy model, and a fake of the front."""

from collections.abc import Callable

from lead.engine.commands import Cancel, Submit
from lead.engine.drafters.lookup import NgramDrafter, PredictionDrafter
from lead.engine.drafters.model_drafter import ModelDrafter
from lead.engine.engine import Engine
from lead.engine.engine_limits import EngineLimits
from lead.engine.events import Committed, DraftsDropped, Finished, Started
from lead.engine.loop import Loop
from lead.engine.sequence import EngineSequence
from lead.engine.speculation.drafts import Drafts as SequenceDrafts
from lead.engine.speculation.manager import MakeLookups, SpeculationManager
from lead.engine.speculation.memory_batching import batching_for
from shared.drafting.drafter import Drafter
from shared.drafting.drafter_options import DrafterOptions
from shared.protocol import Tune
from shared.sampling.sampler import Sampler
from shared.text_store import PromptCacheSize
from tests.fake_backs import Silent, Texts, cells_for
from tests.toy_model import END_TOKENS, GREEDY, FakeTarget, toy_sampler


def submit(sequence="s", tokens=(1, 2), sampling=GREEDY, max_tokens=None, **options) -> Submit:
    tokens = list(tokens)
    return Submit(sequence=sequence, tokens=tokens, sampling=sampling, max_tokens=max_tokens, **options)


def engine_sequence(name="s", tokens=(1, 2), n_ctx=1000, checkpoints=(), **more) -> EngineSequence:
    request = submit(name, tokens, **more)
    sequence = EngineSequence(request, n_ctx, lambda _: toy_sampler(GREEDY, tokens), checkpoints)
    sequence.drafts = SequenceDrafts(name, sequence.tokens, {}, 0.0)
    return sequence


class FakeFront:
    """A pipe with scripted commands by step. Keeps the engine's events, and raises if they make no sense."""

    def __init__(self, script: dict[int, list], drafter=None, max_steps=3000):
        self._script = {step: list(commands) for step, commands in script.items()}
        self._drafter = drafter or Silent()
        self._max_steps = max_steps
        self._n_steps = 0
        self.open = True
        self.running: Texts = {}
        self.texts: Texts = {}  # of all sequences, cancelled ones, too
        self._n_rows: dict[str, int] = {}  # of images
        self.reasons: dict[str, str] = {}
        self.events: list = []
        self.waits: list[float] = []
        self.now = 0.0

    def drain(self, wait):
        block = wait is None
        assert self._n_steps < self._max_steps, f"no end: {self.running}"
        assert not (block and self.running), f"forgotten: {self.running}"
        self._n_steps = min(self._script, default=0) if block else self._n_steps + 1
        due = [step for step in self._script if step <= self._n_steps]
        commands = [command for step in sorted(due) for command in self._script.pop(step)]
        for command in commands:
            self._note(command)
        self.open = bool(self.running or self._script)
        drafts = self._drafter.drafts(self.running)
        if wait:
            self.waits.append(wait)
            self.now += wait / 2 if commands or drafts else wait
        return [*commands, *(draft.model_copy(update={"received_at": self.now}) for draft in drafts)]

    def clock(self):
        """Return the time, which passes with every look at it."""
        self.now += 0.001
        return self.now

    def send(self, *events):
        for event in events:
            self.take(event)

    def take(self, event):
        self.events.append(event)
        if isinstance(event, DraftsDropped | Tune):
            return
        text = self.running[event.sequence]  # KeyError: nothing may follow the end of a sequence
        match event:
            case Started():
                assert 0 <= event.n_cached < len(text) + self._n_rows[event.sequence]
            case Committed():
                assert event.start == len(text), f"{event} does not follow {len(text)} tokens"
                assert 0 <= event.n_accepted <= len(event.tokens)
                assert event.is_plain or len(event.tokens) <= event.n_accepted + 1
                text += event.tokens
            case Finished():
                self.reasons[event.sequence] = event.reason
                del self.running[event.sequence]

    def of(self, kind: type, sequence: str | None = None) -> list:
        """The events of a kind, of one sequence or of all."""
        return [
            event for event in self.events if isinstance(event, kind) and sequence in {None, event.sequence}
        ]

    def _note(self, command):
        if isinstance(command, Submit):
            self.running[command.sequence] = self.texts[command.sequence] = list(command.text)
            self._n_rows[command.sequence] = len(command.tokens) - len(command.text)
        elif isinstance(command, Cancel):
            self.running.pop(command.sequence, None)


def no_drafters(_request: Submit):
    return {}


def local_drafters(request: Submit):
    """The drafters that the engine's process makes."""
    return {
        "ngram": NgramDrafter(8),
        "prediction": PredictionDrafter(request.prediction, request.n_text_prompt),
    }


def inline_drafter(n_slots: int, blur: float, n_max=6, n_window=100) -> ModelDrafter:
    """The engine's own drafter, with a model that is `blur` away from the target."""
    options = DrafterOptions(n_slots, n_window, n_max, n_chunk=4, prompt_cache=PromptCacheSize(200, 1))
    model = FakeTarget(options.n_model_slots, cells_for(options), 16, n_window=n_window, blur=blur)
    return ModelDrafter("draft_model", Drafter(model, options, toy_sampler, END_TOKENS), n_max)


def make_engine(
    limits: EngineLimits,
    depth=4,
    policy="fixed",
    make_drafters: MakeLookups = no_drafters,
    inline: ModelDrafter | None = None,
) -> Engine:
    def sampler_for(request: Submit) -> Sampler:
        return toy_sampler(request.sampling, request.text)

    speculation = SpeculationManager(
        policy,
        depth,
        END_TOKENS,
        make_drafters,
        batching=batching_for(limits),
        batch_sizes=limits.batch_sizes,
        inline=inline,
    )
    if speculation.inline:
        for n_tokens in range(1, 9):
            speculation.inline.cost.learn(n_tokens, 0.0001)
    return Engine(limits, speculation, sampler_for, END_TOKENS)


def make_limits(n_slots=2, n_ctx=200, n_ctx_sequence=100, n_batch=16, **more) -> EngineLimits:
    return EngineLimits(n_slots=n_slots, n_ctx=n_ctx, n_ctx_sequence=n_ctx_sequence, n_batch=n_batch, **more)


def run_engine(  # noqa: PLR0917 - what a run is made of
    front: FakeFront,
    limits: EngineLimits,
    depth=4,
    make_target: Callable[..., FakeTarget] = FakeTarget,
    policy="fixed",
    make_drafters: MakeLookups = no_drafters,
    inline: ModelDrafter | None = None,
) -> FakeTarget:
    """Run the real loop and scheduler between a fake model and a fake front, to the script's end."""
    engine = make_engine(limits, depth, policy, make_drafters, inline)
    target = make_target(
        limits.n_slots,
        limits.n_ctx,
        limits.n_batch,
        n_window=limits.n_ctx_sequence,
        traits=limits.traits,
        own_cells=limits.own_cells,
        batch_sizes=limits.batch_sizes,
    )
    loop = Loop(target, engine, front, clock=front.clock)
    while front.open:
        loop.step()
        engine.check_integrity()
    return target
