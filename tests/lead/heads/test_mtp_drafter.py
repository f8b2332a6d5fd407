import numpy as np
import pytest

from lead.engine.context_shift import ContextShift
from lead.heads.mtp_drafter import MtpDrafter
from shared.heads.hidden_states import HiddenStates
from shared.heads.mtp_span import MtpOutput
from shared.sampling.parameters import SamplingParameters
from tests.lead.engine.drafters.by_name import ByName
from tests.toy_model import END_TOKENS, GREEDY, N_VOCAB, toy_sampler

PROMPT = [4, 5, 6, 7, 8]
SAMPLED = SamplingParameters(seed=7, temperature=0.9, repeat_penalty=1.3, repeat_last_n=8)
UNDER_GRAMMAR = SamplingParameters(seed=7, temperature=0.9, grammar="toy")


def target_state(tokens):
    """The target's state after a text."""
    return np.array([len(tokens), sum(tokens) % 97, tokens[-1]], np.float32)


def head_output(read):
    """The head's output after the pairs (token, state) that it has read, in order."""
    seed = [int(each) for token, state in read for each in (token, *state)]
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=N_VOCAB).astype(np.float32) * 2
    logits[list(END_TOKENS)] -= 9
    return logits, np.array(rng.integers(1, 1000, 3), np.float32)


class FakeHeads:
    """Heads that keep everything they have read, by slot and position."""

    source = "mtp"
    n_batch = 64
    reads_first = True

    def __init__(self):
        self.read = {}
        self.n_decoded = []

    def decode(self, spans):
        self.n_decoded.append(sum(len(span.tokens) for span in spans))
        return [self._decode(span) for span in spans]

    def _decode(self, span):
        cache = self.read.setdefault(span.slot, {})
        for i, (token, state) in enumerate(zip(span.tokens, span.states, strict=True)):
            assert span.start + i not in cache, "a position is read twice"
            cache[span.start + i] = token, tuple(state)
        assert sorted(cache) == list(range(min(cache), max(cache) + 1)), "a position is missing"
        return MtpOutput(*head_output([cache[position] for position in sorted(cache)]))

    def trim(self, slot, first):
        cache = self.read.setdefault(slot, {})
        for position in [each for each in cache if each >= first]:
            del cache[position]


class Target:
    """Decodes committed tokens and drafts, as the engine does, and keeps the hidden states."""

    def __init__(self, sampling=GREEDY, tokens=PROMPT, n_max=6, n_slots=2, shift=None):
        self.states, self.heads = HiddenStates(n_slots, 3), FakeHeads()
        self.drafter = ByName(MtpDrafter(self.heads, self.states, toy_sampler, END_TOKENS, n_max=n_max))
        self.sampling, self.shift = sampling, shift
        self.tokens = list(tokens)
        self.begin("s", 0)

    def begin(self, sequence, slot):
        self.decode(self.tokens, 0, slot)
        self.drafter.open(sequence, self.sampling, self.tokens)
        self.context = list(self.tokens) if self.shift else self.tokens
        self.drafter.place(sequence, slot, self.context)
        self.add(9)  # what the target chooses; the next step decodes it

    def add(self, *tokens):
        """Commit `tokens`. If the context was shifted, it is then a new list, as the engine's."""
        self.tokens += tokens
        if not self.shift:
            return
        context = self.shift.context(self.tokens)
        if len(context) > len(self.context):
            self.context += tokens
        else:
            self.context = context
            self.drafter.place("s", 0, context)

    def decode(self, tokens, start, slot=0):
        new = tokens[start:]
        states = np.array([target_state(tokens[: start + i + 1]) for i in range(len(new))])
        self.states.record(slot, start, new, states)

    def draft(self, n, sequence="s"):
        for _ in range(n):
            done = self.drafter.draft([sequence], 1000)
        return done.drafts[sequence][0] if done.drafts else []

    def verify(self, draft, *, n_accepted, recovered=10):
        """Verify this draft in a step."""
        self.decode([*self.context, *draft], len(self.context) - 1)
        self.add(*draft[:n_accepted], recovered)

    def reread(self):
        """Decode the tokens again that a context shift has left, and add the next token."""
        self.decode(self.context, self.shift.n_keep)
        self.add(9)


def reference(tokens, sampling, n, first=0, shift=None):
    """A plain loop: the head reads the whole context with the target's states, then its own draft."""
    context = shift.context(tokens) if shift else tokens
    read = [
        (token, tuple(target_state(context[:i]) if i else np.zeros(3)))
        for i, token in enumerate(context)
        if i >= first
    ]
    sampler, draft = toy_sampler(sampling, list(tokens)), []
    for _ in range(n):
        logits, state = head_output(read)
        draft.append(sampler.rank(logits, len(tokens) + len(draft), 1)[0].token)
        sampler.accept(draft[-1])
        read.append((draft[-1], tuple(state)))
    return draft


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, UNDER_GRAMMAR], ids=["greedy", "sampled", "grammar"])
def test_drafts_are_those_of_a_plain_loop(sampling):
    target = Target(sampling)
    for n_accepted in (0, 1, 3, 2, 0, 3):
        draft = target.draft(3)
        assert draft == reference(target.tokens, sampling, 3)
        target.verify(draft, n_accepted=n_accepted)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, UNDER_GRAMMAR], ids=["greedy", "sampled", "grammar"])
@pytest.mark.parametrize("n_keep", [0, 3])
def test_after_a_context_shift_drafts_are_those_of_a_plain_loop_over_what_is_left(sampling, n_keep):
    shift = ContextShift(16, n_keep)
    target, n_shifts = Target(sampling, shift=shift), 0
    while n_shifts < 3:
        n_left = 16 - len(shift.context(target.tokens))
        draft = target.draft(2)
        assert draft == reference(target.tokens, sampling, 2, shift=shift)
        target.verify(draft[: n_left - 1], n_accepted=min(n_left - 1, 1))
        if shift.n_discarded(len(target.tokens)) > shift.n_discarded(len(target.tokens) - 1):
            assert target.drafter.n_pending("s") is None, "the target has not read what is left"
            target.reread()
            n_shifts += 1


def test_what_was_read_with_the_targets_states_is_not_read_again():
    target = Target()
    draft = target.draft(3)
    target.verify(draft, n_accepted=2)
    target.draft(1)
    assert target.heads.n_decoded == [6, 1, 1, 3]


def test_pending_tokens_are_those_that_the_head_has_not_read():
    target = Target()
    assert target.drafter.n_pending("s") == 6
    target.draft(2)
    assert target.drafter.n_pending("s") == 1
    target.verify([1, 2], n_accepted=1)
    assert target.drafter.n_pending("s") == 2


def test_a_part_of_the_draft_that_was_not_verified_goes_on():
    target = Target()
    draft = target.draft(4)
    target.verify(draft[:2], n_accepted=2, recovered=draft[2])
    assert target.drafter.n_pending("s") == 4
    assert target.draft(1)[:1] == draft[3:4]


def test_a_long_prompt_is_read_in_parts():
    target = Target()
    rounds = [target.drafter.draft(["s"], 3) for _ in range(2)]
    assert [(each.n_tokens, len(each.drafts)) for each in rounds] == [(3, 0), (3, 1)]
    assert target.draft(1)[:1] == reference(target.tokens, GREEDY, 1)


def test_without_the_states_of_the_beginning_it_reads_from_where_they_begin():
    target = Target()
    target.states.record(0, 20, [1, 2, 3], np.array([target_state([i]) for i in (1, 2, 3)]))
    target.tokens[:] = [*range(20), 1, 2, 3, 9]
    target.draft(1)
    assert min(target.heads.read[0]) == 21


def test_without_any_states_nothing_is_drafted():
    target = Target()
    target.tokens += [1, 2, 3]  # the target has not decoded these
    assert target.drafter.n_pending("s") is None


def test_in_another_slot_it_begins_anew():
    target = Target()
    target.draft(2)
    target.tokens.append(11)
    target.decode(target.tokens[:-1], 0, slot=1)
    target.drafter.place("s", 1, target.tokens)
    assert target.draft(2) == reference(target.tokens, GREEDY, 2)


def test_the_next_text_in_a_slot_reuses_the_common_beginning():
    target = Target()
    target.draft(1)
    target.drafter.leave("s")
    target.tokens = [*PROMPT, 9, 11, 12]
    target.begin("t", 0)
    assert target.drafter.n_pending("t") == 3
    assert target.draft(1, "t") == reference(target.tokens, GREEDY, 1)


def test_a_sequence_that_comes_back_to_its_slot_begins_anew():
    target = Target()
    target.draft(2)
    target.drafter.leave("s")
    tokens, target.tokens = target.tokens, [5] * 20
    target.begin("t", 0)
    target.draft(1, "t")
    target.drafter.leave("t")
    target.decode(tokens, 0)
    tokens.append(11)
    target.drafter.place("s", 0, tokens)
    assert target.draft(2) == reference(tokens, GREEDY, 2)


def test_an_error_ends_drafting_for_that_sequence_alone(monkeypatch):
    target = Target(SAMPLED)
    monkeypatch.setattr("shared.sampling.sampler.Sampler.rank", lambda *_: 1 / 0)
    assert target.draft(1) == []
    assert target.drafter.n_pending("s") is None


def test_several_sequences_share_a_decode():
    target = Target()
    other = [5, 5, 5]
    target.decode(other, 0, slot=1)
    target.drafter.open("t", GREEDY, other)
    target.drafter.place("t", 1, other)
    other.append(7)
    done = target.drafter.draft(["s", "t"], 1000)
    assert target.heads.n_decoded == [10]
    assert done.drafts["s"][0] == reference(target.tokens, GREEDY, 1)
    assert done.drafts["t"][0] == reference(other, GREEDY, 1)
