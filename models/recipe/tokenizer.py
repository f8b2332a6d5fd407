"""Train a byte-level BPE tokenizer; that of the shipped pair has GPT-2's pre-tokenization and 4096 tokens.

python tokenizer.py --data data --out data/tokenizer.json
"""

import argparse
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

_SPLITS = {
    "gpt-2": None,  # the regular expression of ByteLevel itself
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
"""Where merges may not cross, under llama.cpp's names."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("data/tokenizer.json"))
    parser.add_argument("--limit", type=int, default=40000, help="dialogues to learn the merges from")
    parser.add_argument("--size", type=int, default=4096, help="tokens in all")
    parser.add_argument("--pre", choices=sorted(_SPLITS), default="gpt-2", help="pre-tokenization")
    arguments = parser.parse_args()
    texts = _texts(arguments.data / "train.jsonl", arguments.limit)
    tokenizer = train(texts, arguments.size, _SPLITS[arguments.pre])
    # exactly as many entries whatever the corpus: fill up with unused control tokens
    n_unused = arguments.size - tokenizer.get_vocab_size()
    tokenizer.add_special_tokens([f"<|unused_{i}|>" for i in range(n_unused)])
    tokenizer.save(str(arguments.out))
    print("tokens", tokenizer.get_vocab_size(), "of which unused", n_unused)


def train(texts: Iterator[str], size: int, split: str | None) -> Tokenizer:
    """At most `size` tokens, the special ones first."""
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    if split:
        words = pre_tokenizers.Split(Regex(split), behavior="isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, byte_level])
    else:
        tokenizer.pre_tokenizer = byte_level
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=SPECIAL,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _texts(path: Path, limit: int) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        for line in islice(file, limit):
            for message in json.loads(line)["messages"]:
                yield message["role"] + "\n" + message["content"]


if __name__ == "__main__":
    main()
