"""Train the byte-level BPE tokenizer (GPT-2 pre-tokenization, 4096 tokens in all).

python tokenizer.py --data data --out data/tokenizer.json
"""

import argparse
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
N_VOCAB = 4096


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("data/tokenizer.json"))
    parser.add_argument("--limit", type=int, default=40000, help="dialogues to learn the merges from")
    arguments = parser.parse_args()
    tokenizer = train(_texts(arguments.data / "train.jsonl", arguments.limit))
    # exactly N_VOCAB entries whatever the corpus: fill up with unused control tokens
    n_unused = N_VOCAB - tokenizer.get_vocab_size()
    tokenizer.add_special_tokens([f"<|unused_{i}|>" for i in range(n_unused)])
    tokenizer.save(str(arguments.out))
    print("tokens", tokenizer.get_vocab_size(), "of which unused", n_unused)


def train(texts: Iterator[str]) -> Tokenizer:
    """At most N_VOCAB tokens, the special ones first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=N_VOCAB,
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
