"""The connected backs.

This module knows the messages but not the transport: the routes for WebSocket and POST fetch updates and pass
on drafts.
"""

import itertools
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from lead.backs.assignment import Assignment
from lead.backs.back import Back, Transport
from lead.backs.draft_limits import BackLimits, BackStats, DraftLimits
from lead.backs.join_limits import JoinLimits
from lead.engine.commands import OWN_SOURCES, SetBacks
from lead.engine.events import Committed
from lead.engine_client.sequences import LiveSequence, Sequences
from shared.diagnostics.findings import count
from shared.errors import ProtocolError, UnavailableError, VocabularyError
from shared.protocol import PROTOCOL_VERSION, Draft, Hello, LeadMessage, Tune, VocabularyId, Welcome

log = logging.getLogger("lead.backs")

HTTP_SILENCE_SECONDS = 90.0
"""A back that uses POST counts as disconnected after this time without a request. A poll takes up to 60 s."""


class Backs:
    """Registers backs, composes their updates, and checks their drafts. An observer of `Sequences`."""

    def __init__(
        self,
        sequences: Sequences,
        n_vocab: int,
        *,
        post_draft: Callable[[Draft], None],
        on_change: Callable[[SetBacks], None],
        clock: Callable[[], float],
        limits: BackLimits,
    ) -> None:
        """post_draft: passes a draft to the engine. on_change: called with the connected backs when they
        change.

        clock: returns seconds; must be the engine's clock.
        """
        self._sequences = sequences
        self._n_vocab = n_vocab
        self._post_draft = post_draft
        self._on_change = on_change
        self._tune: Tune | None = None
        self._clock = clock
        self._limits = limits
        self.join_limits = JoinLimits()
        self._assignment = Assignment(clock())
        self._backs = self._assignment.backs  # by name
        for sequence in sequences:
            self._open(sequence)
        sequences.on_create(self._open)
        sequences.observe(self)

    def __iter__(self) -> Iterator[Back]:
        """Iterate over the connected backs in the order in which they joined."""
        self._remove_silent()
        return iter(self._backs.values())

    def admit(self, peer: str) -> None:
        """Count an attempt of `peer` to join; raises UnavailableError if it must wait."""
        self.join_limits.admit(peer, self._clock())

    def join(
        self,
        hello: Hello,
        ours: VocabularyId,
        transport: Transport,
        peer: str = "",
        *,
        is_local: bool = False,
    ) -> tuple[Back, Welcome]:
        """Register a back of an admitted peer; return its record and the welcome.

        ours: the vocabulary that it must have. is_local: it runs on this machine. Raises ProtocolError with a
        reason that a person can act on. Raises UnavailableError if it was expelled recently, or if there are
        too many backs. An old connection of this back may still count.
        """
        self._remove_silent()
        if hello.protocol != PROTOCOL_VERSION:
            raise ProtocolError(
                f"the lead uses protocol {PROTOCOL_VERSION} and this back uses {hello.protocol}. "
                "Install the same version of llama-duo on both machines"
            )
        if hello.vocabulary.fingerprint != ours.fingerprint:
            raise VocabularyError(_vocabularies_differ(ours, hello.vocabulary))
        # this back could draft: it is admitted if it is not locked out, and there is room
        self.join_limits.admit_name(peer, hello.name, self._clock())
        if len(self._backs) >= self._limits.max_backs:
            raise UnavailableError(
                f"the lead already has its maximum of {count(len(self._backs), 'back')}. Stop another "
                "back, or raise the lead's --max-backs"
            )
        back = self._register(hello, transport, peer, is_local=is_local)
        welcome = Welcome(
            back=back.id,
            name=back.name,
            max_draft=self._limits.max_draft,
            max_drafts_per_second=self._limits.max_drafts_per_second,
        )
        return back, welcome

    def _register(self, hello: Hello, transport: Transport, peer: str, *, is_local: bool) -> Back:
        now = self._clock()
        back = Back(
            id=secrets.token_hex(16),
            name=self._unique_name(hello.name),
            hello=hello,
            transport=transport,
            peer=peer,
            is_local=is_local,
            connected_at=now,
            last_seen=now,
            draft_limits=DraftLimits(self._limits, self._n_vocab, now),
        )
        self._assignment.join(back, now)
        n_ctx = hello.n_ctx
        log.info("back %s joined%s", back, f", for texts of up to {n_ctx} tokens" if n_ctx else "")
        self._report_change()
        return back

    def get(self, back_id: str) -> Back | None:
        """Return the connected back with this id; None: there is none. The call counts as a sign of life."""
        self._remove_silent()
        back = next((back for back in self._backs.values() if back.id == back_id), None)
        if back:
            back.last_seen = self._clock()
        return back

    def is_connected(self, back: Back) -> bool:
        return self._backs.get(back.name) is back

    def leave(self, back: Back) -> None:
        """Remove a back. Its drafts stay in the engine, because they may still be right."""
        if self.is_connected(back):
            self._assignment.leave(back, self._clock())
            back.changed.notify()
            log.info(
                "back %s left after %.0f s: %d drafts, %d draft tokens verified, %d accepted",
                back,
                self._clock() - back.connected_at,
                back.stats.n_drafts,
                back.stats.n_used_tokens,
                back.stats.n_accepted_tokens,
            )
            self._report_change()

    def expel(self, back: Back, reason: str) -> None:
        """Remove a back because of its messages; it may not join again for a while."""
        if self.is_connected(back):
            seconds = self.join_limits.lock_out(back.peer, back.hello.name, self._clock())
            log.warning("back %s was disconnected and must wait at least %.0f s: %s", back, seconds, reason)
            self.leave(back)

    def disconnect_http(self) -> None:
        """Remove the backs that use POST, before a shutdown; this ends their waiting requests."""
        for back in list(self._backs.values()):
            if back.transport == "http":
                self.leave(back)

    def updates(self, back: Back) -> list[LeadMessage]:
        """Return all messages for `back` since the last call; empty if there are no changes."""
        return back.updates(self._sequences, self._assignment.asked, self._assignment.part, self._tune)

    def tune(self, tune: Tune) -> None:
        """Send all backs new limits for drafts."""
        self._tune = tune
        self._wake(self._backs.values())

    def may_send(self, back: Back, n_bytes: float) -> bool:
        """Return whether to read a message of `n_bytes`; raises ProtocolError after too many stale drafts."""
        return back.draft_limits.admit(n_bytes, self._clock())

    def pause(self, back: Back) -> float:
        """Return the seconds to stop reading from `back`, so that a flood causes few wake-ups."""
        return back.draft_limits.pause(self._clock())

    def take_draft(self, back: Back, draft: Draft) -> None:
        """Check a draft and pass it to the engine; raises ProtocolError after too many invalid drafts."""
        back.last_seen = now = self._clock()
        sequence = self._sequences.get(draft.sequence)
        is_open = back.has_opened(draft.sequence)
        is_accepted = back.draft_limits.accept(draft, sequence, is_open=is_open, now=now)
        if is_accepted and back in self._assignment.asked(draft.sequence):
            self._post_draft(draft.model_copy(update={"source": back.name, "received_at": now}))

    def count_stale(self, name: str, n: int) -> None:
        """Count `n` drafts of a back that came too late for the engine."""
        if back := self._backs.get(name):
            back.draft_limits.count_stale(n, self._clock())

    def on_step(self, sequence: LiveSequence, step: Committed) -> None:
        """Credit the backs whose drafts were verified, and send the new tokens to the assigned backs."""
        for i, source in enumerate(step.sources):
            if back := self._backs.get(source):
                back.stats.n_used_tokens += 1
                back.stats.n_accepted_tokens += i < step.n_accepted
        self._assignment.on_step(sequence.id, step.n_right, sequence.step_seconds, self._clock())
        self._wake(self._assignment.asked(sequence.id))

    def on_end(self, sequence: LiveSequence) -> None:
        """End a sequence for its backs; also remove silent backs, as no other call may come that removes
        them.
        """
        self._remove_silent()
        followers = [back for back in self._backs.values() if sequence.id in back.followed]
        self._assignment.close(sequence.id, self._clock())
        self._wake(followers)

    def describe(self) -> list[dict[str, Any]]:
        """Return a JSON-compatible record of each back, for people and dashboards."""
        return [
            {
                "name": back.name,
                "model": back.hello.vocabulary.model,
                "transport": back.transport,
                "connected_seconds": round(self._clock() - back.connected_at, 3),
                "n_sequences": sum(each.n_sent > 0 for each in back.followed.values()),
                "n_asked": back.n_asked,
                "gain": round(back.gain, 3),
                **asdict(back.stats),
            }
            for back in self
        ]

    def totals(self) -> dict[str, int]:
        """Return the sums of all connected backs' statistics."""
        sums = Counter(asdict(BackStats()))
        for back in self:
            sums.update(asdict(back.stats))
        return dict(sums)

    def _open(self, sequence: LiveSequence) -> None:
        if not sequence.private:
            self._assignment.open(sequence.id, self._clock())
            self._wake(self._assignment.asked(sequence.id))

    def _wake(self, backs: Iterable[Back]) -> None:
        for back in backs:
            back.changed.notify()

    def _report_change(self) -> None:
        share_cores = any(back.is_local for back in self._backs.values())
        self._on_change(SetBacks(names=list(self._backs), share_cores=share_cores))

    def _unique_name(self, wanted: str) -> str:
        """Return `wanted`; if it is taken, add a number after a colon, which members' names do not have."""
        taken = {*OWN_SOURCES, *self._backs}
        names = (wanted if i == 1 else f"{wanted}:{i}" for i in itertools.count(1))
        return next(name for name in names if name not in taken)

    def _remove_silent(self) -> None:
        """Remove backs that use POST and are silent; pings notice the end of a WebSocket."""
        deadline = self._clock() - HTTP_SILENCE_SECONDS
        for back in list(self._backs.values()):
            if back.transport == "http" and back.last_seen < deadline:
                self.leave(back)


def _vocabularies_differ(ours: VocabularyId, theirs: VocabularyId) -> str:
    return (
        f"the vocabularies differ. The lead runs {ours.model!r} with {ours.n_tokens} tokens. This "
        f"back runs {theirs.model!r} with {theirs.n_tokens} tokens. Update llama-duo on the back "
        f"so that it translates drafts, or use a draft model with the tokenizer of {ours.model!r}"
    )
