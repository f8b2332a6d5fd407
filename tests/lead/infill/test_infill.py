"""Prompts for a gap in a text, as llama-server makes them, and the drafts in them."""

from dataclasses import replace

import pytest

from lead.engine.drafters.lookup import NgramDrafter
from lead.infill.gap import Gap
from shared.errors import UnsupportedError
from shared.llama.vocabulary import FimTokens, Vocabulary
from tests.tiny_models import write_fim_vocabulary

PRE, SUF, MID, REP, SEP = range(4000, 4005)
GAP = Gap("def add(a, b):\n    return ", "\n\nprint(add(1, 2))\n", "", [], 8192)
OTHER = ("lib.py", "def sub(a, b):\n    return a - b\n")


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fim")

    def load(**tokens):
        return Vocabulary.load(write_fim_vocabulary(folder / "a.gguf", **tokens))

    return load


@pytest.fixture(scope="module")
def plain_model(load):
    """A vocabulary with tokens for gaps, but not for files or repositories."""
    return load(pre=PRE, suf=SUF, mid=MID)


@pytest.fixture(scope="module")
def repo_model(load):
    return load(pre=PRE, suf=SUF, mid=MID, rep=REP, sep=SEP)


def shown(prompt, vocabulary):
    names = {PRE: "[PRE]", SUF: "[SUF]", MID: "[MID]", REP: "[REP]", SEP: "[SEP]"}
    return "".join(names.get(token) or vocabulary.detokenize([token]) for token in prompt)


def test_the_tokens_are_read(load, repo_model):
    assert repo_model.fim == FimTokens(PRE, SUF, MID, REP, SEP)
    assert load().fim == FimTokens(None, None, None, None, None)


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({}, f"[PRE]{GAP.prefix}[SUF]{GAP.suffix}[MID]"),
        ({"prompt": "a +"}, f"[PRE]{GAP.prefix}a +[SUF]{GAP.suffix}[MID]"),
        ({"spm": True}, f"[SUF]{GAP.suffix}[PRE]{GAP.prefix}[MID]"),
    ],
    ids=["prefix and suffix", "with what the middle begins with", "the suffix first, as some models read it"],
)
def test_before_the_middle_come(plain_model, changes, end):
    assert shown(replace(GAP, **changes).tokens(plain_model), plain_model).endswith(end)


def test_other_files_come_first(plain_model, repo_model):
    gap = replace(GAP, extra=[OTHER])
    text = shown(gap.tokens(repo_model), repo_model)
    assert text.startswith(f"[REP]myproject\n[SEP]lib.py\n{OTHER[1]}[SEP]filename\n")
    text = shown(gap.tokens(plain_model), plain_model)
    assert text.startswith(f"\n\n--- snippet ---\n\n{OTHER[1]}")


def test_what_is_too_long_is_cut_away_from_the_gap(plain_model):
    gap = replace(GAP, prefix="far " * 9000 + "near", suffix="close" + " away" * 9000)
    prompt = gap.tokens(plain_model)
    text = shown(prompt, plain_model)
    assert "near[SUF]close" in text
    assert 1000 < len(prompt) <= 2048 + 1
    small = replace(gap, n_ctx=512).tokens(plain_model)
    assert len(small) <= 256 + 1


def test_of_other_files_the_end_is_kept(plain_model):
    gap = replace(GAP, extra=[("a", "old " * 9000), ("b", "new " * 200)], n_ctx=4096)
    prompt = gap.tokens(plain_model)
    assert len(prompt) < gap.n_ctx
    text = shown(prompt, plain_model)
    assert "new new new" in text.partition("[PRE]")[0]


def test_texts_of_control_tokens_are_text(repo_model):
    end = repo_model.detokenize([repo_model.eos])
    gap = Gap(end, end, "", [(end, end)], 8192)
    assert repo_model.eos not in gap.tokens(repo_model)


@pytest.mark.parametrize(
    ("tokens", "missing"),
    [
        ({}, "prefix token is missing. suffix token is missing. middle token is missing."),
        ({"pre": PRE, "suf": SUF}, ": middle token is missing."),
    ],
)
def test_a_model_without_the_tokens_says_which(load, tokens, missing):
    with pytest.raises(UnsupportedError, match="Infill is not supported by this model") as refusal:
        GAP.tokens(load(**tokens))
    assert str(refusal.value).endswith(missing)


@pytest.mark.parametrize("where", ["suffix", "extra"])
def test_what_is_written_is_drafted_from_the_text_around_it(repo_model, where):
    passage = "\n".join(f"    self.{name} = {name}  # kept" for name in ("zebra", "apple", "quince"))
    gap = replace(GAP, suffix=passage) if where == "suffix" else replace(GAP, extra=[("b.py", passage)])
    written = repo_model.tokenize(passage, add_special=False, parse_special=False)
    n = len(written) // 2
    prompt = gap.tokens(repo_model).tolist()
    drafted, _ = NgramDrafter().draft([*prompt, *written[:n]], 8)
    assert drafted == written[n : n + 8]
