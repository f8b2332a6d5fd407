"""llama-server whose drafts are right at a given rate, whatever its draft model says.

`--spec-synth-rates` makes it accept the i-th token of a draft with a given probability. The draft model still
runs, so it should be one that costs next to nothing.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.peer import Peer, draft_arguments, help_text

_PROMPT = [7 * i for i in range(32)]


class SyntheticPeers:
    """llama-servers on the same cores: one without drafts, one for each length of them. A context manager."""

    def __init__(
        self, binary: Path, target: Path, draft: Path, cores: str, *, rate: float, depths: Sequence[int]
    ) -> None:
        """Each draft token is right with probability `rate` if those before it are. Raises ConfigError."""
        self._stack = ExitStack()
        spelled = help_text(binary)
        self._peers: dict[int, Peer] = {}
        try:
            for depth in (0, *depths):
                extra = [*draft_arguments(spelled, draft, depth), *_rates(rate, depth)] if depth else []
                self._peers[depth] = self._stack.enter_context(Peer(binary, target, cores, extra=extra))
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def answer(self, n_tokens: int) -> dict[int, float]:
        """Tokens per second of one answer, without the prompt, as each server states it; by its drafts."""
        return {depth: _answer(peer, n_tokens) for depth, peer in self._peers.items()}


def _rates(rate: float, depth: int) -> list[str]:
    """llama-server asks how often each token of a draft is accepted, with all before it."""
    return ["--spec-synth-rates", ",".join(f"{rate**i:.4f}" for i in range(1, depth + 1))]


def _answer(peer: Peer, n_tokens: int) -> float:
    request = {
        "prompt": _PROMPT,
        "n_predict": n_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
    }
    reply = peer.http.post("/completion", json=request)
    reply.raise_for_status()
    return float(reply.json()["timings"]["predicted_per_second"])
