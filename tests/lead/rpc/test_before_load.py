"""An engine is alive as long as it computes, while it loads a model that is partly on other machines."""

from lead.rpc.before_load import Computing


def test_a_process_that_only_waits_does_not_proceed():
    seconds = iter([1.0, 1.5, 1.5002, 1.6])
    computing = Computing(lambda: next(seconds))
    assert [computing.has_proceeded() for _ in range(3)] == [True, False, True]
