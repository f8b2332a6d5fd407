"""What is counted for each back."""


def test_verified_tokens_are_credited_to_the_back_that_drafted_them(harness):
    sequence = harness.sequence()
    one, two = harness.join(name="one"), harness.join(name="two")
    harness.commit(sequence, [4, 5, 6], sources=["two"] * 3, n_accepted=2, rejected=[9])
    assert (two.stats.n_used_tokens, two.stats.n_accepted_tokens) == (3, 2)
    assert one.stats.n_used_tokens == 0


def test_each_token_is_credited_to_its_own_source(harness):
    sequence = harness.sequence()
    one, two = harness.join(name="one"), harness.join(name="two")
    harness.commit(sequence, [4, 5, 6], sources=["two", "one", "ngram", "two"], n_accepted=2, rejected=[8, 9])
    assert (one.stats.n_used_tokens, one.stats.n_accepted_tokens) == (1, 1)
    assert (two.stats.n_used_tokens, two.stats.n_accepted_tokens) == (2, 1)


def test_totals_are_the_sums_over_all_backs(harness):
    sequence = harness.sequence()
    harness.join(name="one"), harness.join(name="two")
    harness.commit(sequence, [4, 5], sources=["one", "two"], n_accepted=1, rejected=[8])
    totals = harness.backs.totals()
    assert (totals["n_used_tokens"], totals["n_accepted_tokens"], totals["n_drafts"]) == (2, 1, 0)
