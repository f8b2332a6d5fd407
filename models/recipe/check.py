"""An exported file against PyTorch: the same tokens, nearly the same logits, the same greedy text."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from chatml import prompt
from decoding import read
from encoding import token_id
from llama_cpp import Llama
from loading import open_model
from model import Model
from numpy.typing import NDArray
from tokenizers import Tokenizer

_QUESTIONS = [
    "Tell me a story about a fox named Zorvi and a red umbrella.",
    "How does speculative decoding work?",
    "What is the capital of France?",
    "Repeat after me: The green frog paints a silver spoon.",
    "Illustrate the difference between concurrency and parallelism in python.",
]
_N_NEW = 120  # tokens after each question, at most


@dataclass
class Agreement:
    """How well the two agree so far."""

    worst: float = 0.0
    """Largest logit error, relative to the largest logit."""
    n_same_text: int = 0
    n_same_token: int = 0
    n_tokens: int = 0

    def add(self, ours: NDArray[np.float32], theirs: NDArray[np.float32], *, same_text: bool) -> None:
        self.worst = max(self.worst, float(np.abs(ours - theirs).max() / np.abs(ours).max()))
        self.n_same_token += int((ours.argmax(-1) == theirs.argmax(-1)).sum())
        self.n_tokens += len(ours)
        self.n_same_text += same_text


def check(model: Model, tokenizer: Path, path: Path) -> None:
    """Compare tokens, logits and greedy continuations of llama.cpp with PyTorch's, and print the result."""
    encoder = Tokenizer.from_file(str(tokenizer))
    llm = open_model(path, model.config.context)
    model.eval()
    agreement = Agreement()
    for question in _QUESTIONS:
        text = prompt([{"role": "user", "content": question}])
        ids: list[int] = encoder.encode(text).ids
        if ids != llm.tokenize(text.encode(), add_bos=False, special=True):
            raise ValueError(f"{path.name} has another tokenizer: it disagrees about {question!r}")
        out, ours = _greedy(model, ids, token_id(encoder, "<|im_end|>"))
        read(llm, out)
        theirs = llm.scores[: len(out)].copy()
        agreement.add(ours, theirs, same_text=_continue(llm, ids, len(out)) == out)
    print(
        f"{path.name}: largest relative logit error {agreement.worst:.2e},"
        f" same top token {agreement.n_same_token}/{agreement.n_tokens},"
        f" same greedy text {agreement.n_same_text}/{len(_QUESTIONS)}"
    )


@torch.no_grad()
def _greedy(model: Model, ids: list[int], end: int) -> tuple[list[int], NDArray[np.float32]]:
    """PyTorch's own tokens, prompt included, and the logits after each of them."""
    out = list(ids)
    while len(out) < len(ids) + _N_NEW and out[-1] != end:
        out.append(int(model(torch.tensor([out]))[0, -1].argmax()))
    logits: NDArray[np.float32] = model(torch.tensor([out]))[0].numpy()
    return out, logits


def _continue(llm: Llama, ids: list[int], length: int) -> list[int]:
    """llama.cpp's own tokens, prompt included."""
    read(llm, ids)
    out = list(ids)
    while len(out) < length:
        out.append(int(llm.scores[len(out) - 1].argmax()))
        llm.eval(out[-1:])
    return out
