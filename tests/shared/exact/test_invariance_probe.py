"""The probe with the shipped model, and with stand-ins whose kernels differ."""

import numpy as np
import pytest

from shared.exact.batch_invariance import RESERVE, InvariantSizes
from shared.exact.invariance_probe import SizeReport, estimate_sizes, measure_sizes, rehearse
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.model_files.builtin import builtin_target
from shared.settings.model_options import ModelOptions


class Kernels:
    """A model whose logits depend on the kernel of each token. Its time depends on the size of the batch."""

    n_vocab, n_activations, n_ctx_slot, n_ubatch = 8, 8192, 1024, 512

    def __init__(self, kernel, seconds=lambda _: 1.0):
        self._kernel = kernel
        self._seconds = seconds
        self.now = 0.0
        self.length = 0

    def decode(self, spans):
        (span,) = spans
        assert span.start == self.length
        self.length += len(span.tokens)
        size = len(span.tokens)
        self.now += self._seconds(size)
        kernels = [self._kernel(size, i) for i in range(size)][size - span.n_logits :]
        return [np.array(kernels, np.float32).reshape(span.n_logits, 1)]

    def trim(self, slot, n_keep):
        assert slot == 0
        self.length = n_keep


def report(kernel, seconds=lambda _: 1.0):
    model = Kernels(kernel, seconds)
    found = measure_sizes(model, 500.0, clock=lambda: model.now)
    assert model.length == 0
    return found


def test_one_kernel_for_several_tokens_serves_prompts_and_answers():
    policy = report(lambda size, _: size == 1).batch_sizes()
    assert policy.is_uniform
    assert (policy.answer[0], policy.answer[-1], policy.wide) == (2, 64, (80, 96, 112, 128))


def test_few_and_many_tokens_make_two_classes():
    policy = report(lambda size, _: (size > 1) + (size > 6)).batch_sizes()
    assert policy.answer == (2, 3, 4, 5, 6)
    assert policy.prompt[:3] == (7, 8, 9)
    assert not policy.is_uniform


def test_tokens_that_are_left_over_from_groups_of_four_make_their_sizes_unfit():
    policy = report(lambda size, i: 9 if i < size // 4 * 4 and size >= 8 else -size).batch_sizes()
    assert all(size % 4 == 0 for size in policy.prompt)
    assert policy.prompt[:3] == (8, 12, 16)


def test_a_single_token_is_in_no_class_with_others():
    policy = report(lambda _size, _i: 0).batch_sizes()
    assert policy.answer[0] == 2


def test_where_no_sizes_agree_there_is_no_policy():
    assert report(lambda size, _: size).batch_sizes() is None


def test_the_choice_of_sizes_does_not_depend_on_their_times():
    def kernel(size, _i):
        return (size > 1) + (size > 6)

    slow, fast = report(kernel, float), report(kernel, lambda n: 1.0 / n)
    assert slow.batch_sizes().answer[0] == fast.batch_sizes().answer[0] == 2


def test_sizes_that_agree_after_a_short_text_only_are_unfit_however_little_time_there_is():
    model = Kernels(lambda size, _: size if model.length > 200 and size in (5, 6, 7) else 0)
    sizes = measure_sizes(model, 1.0, clock=lambda: model.now).batch_sizes()
    assert not {5, 6, 7} & {*sizes.answer, *sizes.prompt}


@pytest.mark.parametrize(
    ("seconds", "price"), [(0.15, None), (0.79, None), (0.85, 1.0), (1.05, 1.05), (3.9, 3.9), (50.9, None)]
)
def test_a_step_of_two_tokens_has_no_price_that_only_a_busy_machine_explains(seconds, price):
    found = report(lambda size, _: size == 1, lambda n: seconds if n > 1 else 1.0)
    assert found.price(found.batch_sizes()) == (price and pytest.approx(price))


def test_a_step_of_one_token_is_priced_by_the_smallest_size():
    assert report(lambda size, _: size == 1, lambda n: 1.0 + 0.3 * (n > 1)).price(
        InvariantSizes((2, 3), (2, 3))
    ) == pytest.approx(1.3)


def test_a_model_that_takes_too_long_is_not_measured():
    model = Kernels(lambda _size, _i: 0)
    assert estimate_sizes(model, 2.0, clock=lambda: model.now) is None
    assert model.now <= 2.0


def test_an_estimate_takes_hardly_longer_than_it_may():
    model = Kernels(lambda size, _: size == 1, lambda n: 1.0 + 0.3 * (n - 1))
    found = estimate_sizes(model, 35.0, clock=lambda: model.now)
    assert found.price(found.batch_sizes()) == pytest.approx(1.3)
    assert model.now <= 40.0


def test_sizes_agree_only_if_all_their_common_tokens_do():
    found = SizeReport(prints={2: {(0, 0): b"a", (0, 1): b"b"}, 4: {(0, 0): b"a", (0, 1): b"c"}})
    assert not found.agree(2, 4)
    assert found.class_of(2) == (2,)


def test_the_shipped_model_agrees_for_several_tokens(model):
    found = estimate_sizes(model, 20.0)
    assert found.batch_sizes().is_uniform
    assert all(seconds > 0 for seconds in found.seconds.values())


@pytest.fixture(scope="module")
def separate():
    options = ModelOptions(ctx_size=1024, parallel=2, threads=1, kv_unified=False)
    model = Model(plan_memory(builtin_target(), options, n_reserve=RESERVE))
    yield model
    model.close()


def test_measured_sizes_keep_the_bits(separate):
    policy = measure_sizes(separate, 0.1).batch_sizes()
    assert rehearse(separate, policy) == policy
    assert separate.batch_sizes == policy
    separate.batch_sizes = None


def test_sizes_that_do_not_agree_are_refused(separate):
    assert rehearse(separate, InvariantSizes((1, 2, 3, 4, 6, 8), (1, 2, 4, 8, 16))) is None
    assert separate.batch_sizes is None
