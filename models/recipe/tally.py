"""How well the draft guesses the target, counted over the prompts of one category."""

from dataclasses import dataclass, field

import numpy as np
from decoding import Floats

HEAD = (
    "| category | prompts | tokens | greedy acceptance | tokens/pass, 2 guesses | 4 guesses | 8 guesses"
    " | unlimited | sum min(p,q) | p(argmax q) | sum p*q |\n|" + "---|" * 11
)
_GUESSES = (2, 4, 8, 10**6)


@dataclass
class Tally:
    matches: list[list[bool]] = field(default_factory=list)
    """For each prompt and token of the target's greedy answer: did the draft guess it?"""
    overlap: list[float] = field(default_factory=list)
    best: list[float] = field(default_factory=list)
    dot: list[float] = field(default_factory=list)

    def add(self, matches: list[bool], p: Floats, q: Floats) -> None:
        """One prompt: the greedy matches, and both distributions along sampled text, [tokens, vocabulary]."""
        self.matches.append(matches)
        self.overlap += np.minimum(p, q).sum(-1).tolist()
        self.best += p[np.arange(len(p)), q.argmax(-1)].tolist()
        self.dot += (p * q).sum(-1).tolist()

    def row(self, name: str) -> str:
        """The line below HEAD."""
        flat = [match for each in self.matches for match in each]
        cells = [name, str(len(self.matches)), str(len(flat)), f"{np.mean(flat):.3f}"]
        for n_guesses in _GUESSES:
            n_passes = sum(target_passes(each, n_guesses) for each in self.matches)
            cells.append(f"{len(flat) / n_passes:.2f}")
        cells += [f"{np.mean(values):.3f}" for values in (self.overlap, self.best, self.dot)]
        return "| " + " | ".join(cells) + " |"


def target_passes(matches: list[bool], n_guesses: int) -> int:
    """How many passes greedy speculation needs for these tokens, with `n_guesses` guesses per pass."""
    i, n_passes = 0, 0
    while i < len(matches):
        n_right = 0
        while n_right < n_guesses and i + n_right < len(matches) and matches[i + n_right]:
            n_right += 1
        n_passes += 1
        i += n_right + 1
    return n_passes
