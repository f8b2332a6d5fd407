"""Text and logits from a model opened with `open_model`."""

import numpy as np
from chatml import Message, prompt
from llama_cpp import Llama
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def softmax(logits: Floats) -> Floats:
    e = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities: Floats = e / e.sum(-1, keepdims=True)
    return probabilities


def tokenize(llm: Llama, messages: list[Message]) -> list[int]:
    """The tokens after which the assistant answers."""
    tokens: list[int] = llm.tokenize(prompt(messages).encode(), add_bos=False, special=True)
    return tokens


def detokenize(llm: Llama, tokens: list[int]) -> str:
    """The answer's text, without the token that ends it."""
    text: bytes = llm.detokenize([token for token in tokens if token != llm.token_eos()])
    return text.decode("utf-8", "replace")


def read(llm: Llama, tokens: list[int]) -> None:
    """Forget the last text and evaluate this one; `llm.scores[i]` are then the logits after token i."""
    llm.reset()  # type: ignore[no-untyped-call]  # llama_cpp does not annotate it
    llm.eval(tokens)


def choose(logits: Floats, temperature: float, rng: np.random.Generator) -> int:
    """The best token at temperature 0, else one drawn."""
    if temperature == 0:
        return int(logits.argmax())
    return int(rng.choice(len(logits), p=softmax(logits.astype(np.float64) / temperature)))


def generate(
    llm: Llama, start: list[int], limit: int, temperature: float, rng: np.random.Generator
) -> tuple[list[int], Floats]:
    """At most `limit` tokens that follow `start`, the end token included, and the logits that chose them."""
    read(llm, start)
    n = len(start)
    out: list[int] = []
    while len(out) < limit:
        out.append(choose(llm.scores[n + len(out) - 1], temperature, rng))
        if out[-1] == llm.token_eos():
            break
        llm.eval(out[-1:])
    return out, llm.scores[n - 1 : n - 1 + len(out)].copy()


def forced(llm: Llama, start: list[int], out: list[int]) -> Floats:
    """The logits of another model along the same text."""
    read(llm, start + out[:-1])
    logits: Floats = llm.scores[len(start) - 1 : len(start) - 1 + len(out)].copy()
    return logits
