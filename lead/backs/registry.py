"""The backs that are connected, and what each of them has been told.

Knows the messages but no transport: WebSocket and POST handlers ask for news and hand in drafts. News is
computed from cursors when it is asked for, so a back that is slow or away costs no memory, and what it
missed arrives merged.
"""

import itertools
import logging
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from lead.engine.commands import NGRAM, PREDICTION, PostDraft
from lead.engine.events import Committed
from lead.generation.sequences import LiveSequence, Sequences
from lead.settings.limits import RequestLimits
from shared.bucket import Bucket
from shared.errors import ProtocolError, UnavailableError
from shared.protocol import (
    MAX_TOKENS_PER_MESSAGE,
    PROTOCOL_VERSION,
    Close,
    Draft,
    Extend,
    Hello,
    LeadMessage,
    Open,
    Tune,
    VocabularyId,
    Welcome,
)
from shared.terminal import one_line

log = logging.getLogger("lead.backs")

Transport = Literal["websocket", "http"]

MAX_INVALID_DRAFTS = 100
"""A back that sends more of them is broken or hostile, and is disconnected."""
FLOOD_TIMES = 3
"""A back that sends so many times the drafts per second that it may is disconnected, unlike one that has a
fast model and many sequences and was not told how many the lead takes."""
_FLOOD_SECONDS = 10.0
"""It takes a while: so many seconds at one more time that rate."""
HTTP_SILENCE_SECONDS = 90.0
"""A back that posts is gone when it has not been heard for this long; it long-polls for at most 60."""


@dataclass(slots=True)
class Figures:
    """What came of a back's drafts. Used tokens were in a step's batch; the others were never needed."""

    n_drafts: int = 0
    n_draft_tokens: int = 0
    n_used_tokens: int = 0
    n_accepted_tokens: int = 0
    n_stale_drafts: int = 0
    n_invalid_drafts: int = 0
    n_excess_drafts: int = 0


@dataclass(slots=True)
class Back:
    """A connected back. `cursors` says how many committed tokens it has been told, by sequence."""

    id: str
    name: str
    hello: Hello
    transport: Transport
    connected_at: float
    last_heard: float
    allowance: Bucket  # drafts that are taken
    patience: Bucket  # drafts beyond them that are only dropped
    cursors: dict[str, int] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)
    tune: Tune | None = None  # what it has been told to do
    n_replies: int = 0  # to its posts
    confirmed: tuple[dict[str, int], Tune | None] = field(default_factory=lambda: ({}, None))
    # `cursors` and `tune` as of the last reply that arrived

    def __str__(self) -> str:
        return f"{self.name} ({one_line(self.hello.vocabulary.model)}, {self.transport})"


class Backs:
    """Joins, tells, listens. An observer of `Sequences`."""

    def __init__(
        self,
        sequences: Sequences,
        vocabulary: VocabularyId,
        n_vocab: int,
        *,
        post_draft: Callable[[PostDraft], None],
        on_change: Callable[[list[str]], None],
        clock: Callable[[], float],
        limits: RequestLimits | None = None,
    ) -> None:
        """`post_draft` hands a draft to the engine; `on_change` hears the names of the connected backs.

        `clock` gives seconds, and must be the engine's.
        """
        self._sequences = sequences
        self.vocabulary = vocabulary
        self._n_vocab = n_vocab
        self._post_draft = post_draft
        self._on_change = on_change
        self._tune: Tune | None = None
        self._clock = clock
        self._limits = limits or RequestLimits()
        self._backs: dict[str, Back] = {}
        sequences.observe(self)

    def __iter__(self) -> Iterator[Back]:
        """The backs that are connected, in the order in which they came."""
        self._forget_silent()
        return iter(self._backs.values())

    def join(self, hello: Hello, transport: Transport) -> tuple[Back, Welcome]:
        """Take a back.

        Raises ProtocolError with a reason that a person can act on; UnavailableError for one back too many,
        which may be its own ghost behind a cut cable.
        """
        self._forget_silent()
        if hello.protocol != PROTOCOL_VERSION:
            raise ProtocolError(
                f"the lead speaks protocol {PROTOCOL_VERSION}, this back {hello.protocol}: "
                "install the same version of llama-duo on both"
            )
        if hello.vocabulary.fingerprint != self.vocabulary.fingerprint:
            raise ProtocolError(_vocabularies_differ(self.vocabulary, hello.vocabulary))
        if len(self._backs) >= self._limits.max_backs:
            raise UnavailableError(
                f"the lead has {len(self._backs)} backs already, which is as many as it takes (--max-backs)"
            )
        now = self._clock()
        rate = self._limits.max_drafts_per_second
        back = Back(
            id=secrets.token_hex(16),
            name=self._free_name(hello.name),
            hello=hello,
            transport=transport,
            connected_at=now,
            last_heard=now,
            allowance=Bucket(rate, max(1.0, rate), now),
            patience=Bucket(rate * (FLOOD_TIMES - 1), max(1.0, rate * _FLOOD_SECONDS), now),
        )
        self._backs[back.id] = back
        log.info("back %s joined", back)
        self._tell_change()
        welcome = Welcome(
            back=back.id,
            name=back.name,
            max_draft=self._limits.max_draft,
            max_drafts_per_second=rate,
        )
        return back, welcome

    def get(self, back_id: str) -> Back | None:
        """The connected back with this id; hearing of it keeps it alive."""
        self._forget_silent()
        back = self._backs.get(back_id)
        if back:
            back.last_heard = self._clock()
        return back

    def leave(self, back: Back) -> None:
        """Forget a back; its drafts on the board stay, they may still be right."""
        if self._backs.pop(back.id, None):
            log.info(
                "back %s left after %.0f s: %d drafts, %d of their tokens checked, %d accepted",
                back,
                self._clock() - back.connected_at,
                back.figures.n_drafts,
                back.figures.n_used_tokens,
                back.figures.n_accepted_tokens,
            )
            self._tell_change()

    def dismiss(self) -> None:
        """The lead is about to end: forget the backs that post, and wake those that wait for news."""
        for back in list(self._backs.values()):
            if back.transport == "http":
                self.leave(back)
        self._sequences.changed.notify()

    def knows(self, back: Back) -> bool:
        """Whether `back` has neither left nor been forgotten."""
        return back.id in self._backs

    def news(self, back: Back) -> list[LeadMessage]:
        """All that has happened since the last call, merged; empty if nothing has."""
        messages: list[LeadMessage] = []
        if self._tune != back.tune and self._tune is not None:
            back.tune = self._tune
            messages.append(self._tune)
        for sequence_id in [known for known in back.cursors if self._sequences.get(known) is None]:
            del back.cursors[sequence_id]
            messages.append(Close(sequence=sequence_id, reason="ended"))
        for sequence in self._sequences:
            if sequence.private:
                continue
            if sequence.id not in back.cursors:
                if len(back.cursors) >= back.hello.n_sequences:
                    continue
                messages.append(_open(sequence))
                back.cursors[sequence.id] = min(len(sequence.tokens), MAX_TOKENS_PER_MESSAGE)
            messages += _extensions(sequence, back.cursors[sequence.id])
            back.cursors[sequence.id] = len(sequence.tokens)
        return messages

    def confirm(self, back: Back, heard: int | None) -> None:
        """The last reply that a posting back has had is number `heard`; what a later one told is news again.

        None: it does not say, and all are taken to have arrived.
        """
        if heard in {None, back.n_replies}:
            back.confirmed = dict(back.cursors), back.tune
        else:
            cursors, back.tune = back.confirmed
            back.cursors = dict(cursors)

    def number_reply(self, back: Back) -> int:
        """The number of the next reply to a posting back."""
        back.n_replies += 1
        return back.n_replies

    def tune(self, tune: Tune) -> None:
        """All backs should draft like this from now on."""
        self._tune = tune
        self._sequences.changed.notify()

    def take_draft(self, back: Back, draft: Draft) -> None:
        """Check a draft and hand it on; raises ProtocolError when a back has sent too many wrong ones."""
        back.last_heard = self._clock()
        figures = back.figures
        figures.n_drafts += 1
        figures.n_draft_tokens += len(draft.tokens)
        if not back.allowance.take(back.last_heard):
            self._count_excess(back)
            return
        sequence = self._sequences.get(draft.sequence)
        if draft.sequence not in back.cursors and sequence is not None:
            self._count_invalid(back)  # it was never told of this sequence
        elif sequence is None:
            figures.n_stale_drafts += 1
        elif (
            draft.base > len(sequence.tokens)
            or max(draft.tokens) >= self._n_vocab
            or len(draft.tokens) > self._limits.max_draft
        ):
            self._count_invalid(back)
        else:
            self._post_draft(
                PostDraft(
                    sequence=draft.sequence,
                    source=back.name,
                    base=draft.base,
                    tokens=draft.tokens,
                    parents=draft.parents,
                    confidences=draft.confidences,
                    received_at=back.last_heard,
                )
            )

    def count_stale(self, name: str, n: int) -> None:
        """The engine found `n` drafts of a back stale."""
        if back := self._named(name):
            back.figures.n_stale_drafts += n

    def on_step(self, _sequence: LiveSequence, step: Committed) -> None:
        """Credit the backs whose drafts were verified."""
        for i, source in enumerate(step.sources):
            if back := self._named(source):
                back.figures.n_used_tokens += 1
                back.figures.n_accepted_tokens += i < step.n_accepted

    def on_end(self, _sequence: LiveSequence) -> None:
        """The next `news` says it. Silent backs are forgotten here, too, for nobody may ask for them."""
        self._forget_silent()

    def describe(self) -> list[dict[str, Any]]:
        """One record per back, for people and dashboards."""
        return [
            {
                "name": back.name,
                "model": back.hello.vocabulary.model,
                "transport": back.transport,
                "connected_seconds": round(self._clock() - back.connected_at, 3),
                "n_sequences": len(back.cursors),
                **{name: getattr(back.figures, name) for name in Figures.__slots__},
            }
            for back in self
        ]

    def _tell_change(self) -> None:
        self._on_change([back.name for back in self._backs.values()])

    def _count_invalid(self, back: Back) -> None:
        back.figures.n_invalid_drafts += 1
        if back.figures.n_invalid_drafts > MAX_INVALID_DRAFTS:
            raise ProtocolError(f"more than {MAX_INVALID_DRAFTS} drafts were not valid")

    def _count_excess(self, back: Back) -> None:
        back.figures.n_excess_drafts += 1
        if not back.patience.take(back.last_heard):
            rate = self._limits.max_drafts_per_second
            raise ProtocolError(
                f"more than {FLOOD_TIMES} times {rate:g} drafts a second (--max-drafts-per-second)"
            )

    def _named(self, name: str) -> Back | None:
        return next((back for back in self._backs.values() if back.name == name), None)

    def _free_name(self, wanted: str) -> str:
        taken = {NGRAM, PREDICTION, *(back.name for back in self._backs.values())}
        names = (wanted if i == 1 else f"{wanted}-{i}" for i in itertools.count(1))
        return next(name for name in names if name not in taken)

    def _forget_silent(self) -> None:
        """A WebSocket's end is noticed by its pings; only backs that post can fall silent."""
        deadline = self._clock() - HTTP_SILENCE_SECONDS
        for back in list(self._backs.values()):
            if back.transport == "http" and back.last_heard < deadline:
                self.leave(back)


def _open(sequence: LiveSequence) -> Open:
    return Open(
        sequence=sequence.id, sampling=sequence.sampling, tokens=sequence.tokens[:MAX_TOKENS_PER_MESSAGE]
    )


def _extensions(sequence: LiveSequence, cursor: int) -> list[Extend]:
    return [
        Extend(
            sequence=sequence.id, start=start, tokens=sequence.tokens[start : start + MAX_TOKENS_PER_MESSAGE]
        )
        for start in range(cursor, len(sequence.tokens), MAX_TOKENS_PER_MESSAGE)
    ]


def _vocabularies_differ(ours: VocabularyId, theirs: VocabularyId) -> str:
    return (
        f"the vocabularies differ: the lead runs {ours.model!r} with {ours.n_tokens} tokens, this back "
        f"{theirs.model!r} with {theirs.n_tokens}. Start the back with a smaller model of the same family as "
        f"{ours.model!r}: both must have the same tokenizer"
    )
