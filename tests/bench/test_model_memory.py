import random

import pytest

from bench.model_memory import RandomTraffic, grow


class Slots:
    """In the place of a model: keeps the length of each slot, and the longest that there were."""

    n_slots, n_ctx, n_batch, n_vocab = 2, 128, 32, 10

    def __init__(self):
        self.lengths = [0, 0]
        self.longest = [0, 0]
        self.batches = []

    def decode(self, spans):
        self.batches.append(sum(len(span.tokens) for span in spans))
        for span in spans:
            assert span.start == self.lengths[span.slot]
            assert span.n_logits == len(span.tokens)
            self.lengths[span.slot] += len(span.tokens)
        self.longest = [max(pair) for pair in zip(self.longest, self.lengths, strict=True)]

    def trim(self, slot, n_keep):
        assert n_keep < self.lengths[slot]
        self.lengths[slot] = n_keep


@pytest.fixture
def slots():
    return Slots()


@pytest.fixture
def traffic(slots):
    return RandomTraffic(slots, random.Random(1))


def test_the_largest_batch_is_decoded_over_the_fullest_cache(slots, traffic):
    traffic.touch_all()
    assert (slots.longest, slots.batches[-1], slots.lengths) == ([64, 64], 32, [0, 0])


def test_steps_continue_what_was_kept_and_never_leave_their_part_of_the_cache(slots, traffic):
    for _ in range(500):
        traffic.step()
    assert max(slots.longest) <= 64
    assert traffic.n_kept > 500


@pytest.mark.parametrize("touched", [True, False])
def test_there_is_a_row_for_each_block(traffic, touched):
    rows = grow(traffic, 300, 100, touched=touched)
    assert [row["tokens"] // 100 for row in rows] == [1, 2, 3]
    assert all(row["model"] > 1 for row in rows)
