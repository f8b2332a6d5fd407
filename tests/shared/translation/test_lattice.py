import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.translation.lattice import Lattice, NextTokens, Node
from shared.translation.projection import Projection
from tests.shared.translation.toys import generator, longest_first, random_vocabulary

THE, THEATER, ATER, A = 0, 1, 2, 3
DRAFT = longest_first([b"the", b"theater", b"ater", b"a"])
TARGET = longest_first([b"the", b"ater", b"a", b"theater", b"t", b"h", b"e", b"r"])
SPLITTING = longest_first([b"the", b"ater", b"a"])


def expecting(**probabilities):
    """The next tokens, by the names of draft tokens."""
    ids = {"the": THE, "theater": THEATER, "ater": ATER, "a": A}
    chosen = sorted((ids[name], probability) for name, probability in probabilities.items())
    return NextTokens(
        np.array([token for token, _ in chosen], np.int32),
        np.array([probability for _, probability in chosen], np.float32),
    )


def probabilities(lattice, vocabulary):
    found = np.exp(lattice.logits().astype(np.float64))
    return {vocabulary.pieces[i].decode(): round(float(p), 4) for i, p in enumerate(found) if p > 1e-6}


def total(lattice):
    return np.exp(lattice.logits().astype(np.float64)).sum()


def lattice(target, text, position, *path):
    return Lattice(Projection(DRAFT, target), text, position, path)


AFTER_THE = (Node(0, expecting(the=0.5, theater=0.3, a=0.2), THE), Node(3, expecting(ater=0.5, a=0.5), None))


@pytest.mark.parametrize(
    ("target", "text", "position", "path", "expected"),
    [
        (TARGET, b"", 0, [Node(0, expecting(the=0.7, a=0.3), None)], {"the": 0.7, "a": 0.3}),
        (SPLITTING, b"", 0, [Node(0, expecting(the=0.5, theater=0.3, a=0.2), None)], {"the": 0.8, "a": 0.2}),
        (SPLITTING, b"the", 3, [Node(0, expecting(theater=0.3, a=0.7), None)], {"ater": 0.3}),
        (SPLITTING, b"the", 3, AFTER_THE, {"ater": 0.3 + 0.25, "a": 0.25}),
        (
            *(TARGET, b"the", 0),
            [Node(0, expecting(the=0.8, a=0.2), THE), Node(3, expecting(ater=0.75, a=0.25), None)],
            {"theater": 0.6, "the": 0.2, "a": 0.2},
        ),
    ],
    ids=[
        "equal tokens keep their probability",
        "a longer draft token counts for the first token of its bytes",
        "inside a draft token only those count that begin like the text",
        "both ways to read the text are added",
        "a look-ahead finds a token longer than the draft model's",
    ],
)
def test_what_follows_in_tokens_of_the_target(target, text, position, path, expected):
    assert probabilities(lattice(target, text, position, *path), target) == expected


def test_inside_a_draft_token_those_do_not_count_that_the_target_would_have_cut_otherwise():
    path = [Node(0, expecting(the=0.7, theater=0.3), THE), Node(3, expecting(a=1.0), None)]
    found = Lattice(Projection(DRAFT, TARGET), b"the", 3, path, begun={0: TARGET.token_of(b"the")})
    assert probabilities(found, TARGET) == {"a": 0.7}


def test_the_total_is_the_probability_of_the_text_since_the_first_node():
    assert total(lattice(SPLITTING, b"the", 3, *AFTER_THE)) == pytest.approx(0.8)


def test_the_likeliest_reading_of_a_token():
    assert lattice(SPLITTING, b"the", 3, *AFTER_THE).best_reading(1) == (0, THEATER, b"ater", False)


def test_a_token_that_the_draft_model_does_not_expect_has_no_reading():
    found = lattice(TARGET, b"", 0, Node(0, expecting(the=1.0), None))
    assert found.best_reading(1) is None
    assert np.isfinite(found.logits()).all()


def test_without_a_path_all_tokens_are_equal():
    assert len(set(lattice(TARGET, b"", 0).logits().tolist())) == 1


@given(st.integers(0, 200))
def test_no_probability_is_lost(seed):
    rng = generator(seed)
    draft, target = random_vocabulary(rng, 40), random_vocabulary(rng, 40)
    weights = np.array([rng.random() ** 4 for _ in range(len(draft))], np.float32)
    whole = NextTokens.of(np.log(weights))
    following = rng.randrange(len(draft))
    node = Node(0, whole, following)
    text = draft.pieces[following]
    found = Lattice(Projection(draft, target), text, 0, [node, Node(len(text), whole, None)])
    assert total(found) == pytest.approx(1.0, abs=1e-4)
