"""Train the target or the draft on the packed rows.

    python train.py --preset target --minutes 53 --out ckpt/target.pt
    python train.py --preset draft --minutes 12 --lr 3e-3 --out ckpt/draft.pt --teacher ckpt/target.pt

The learning rate follows a cosine over whichever ends first, the steps or the minutes, so a run on a busy
machine still ends annealed. With --teacher the loss is the KL divergence from the teacher's next-token
distribution (plus a little of the plain loss).
"""

import argparse
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from batches import batches
from checkpoint import load, save
from model import PRESETS, Config, Model, is_matrix
from objective import objective
from torch import Tensor

_REPORT_EVERY = 25  # steps
_SAVE_EVERY = 100  # steps
_LAST_SHARE = 0.02  # of the learning rate, at the end of the schedule
_MAX_GRADIENT = 1.0


class Trainer:
    """One run: from the arguments' model to the checkpoint `out`."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        torch.manual_seed(arguments.seed)
        torch.set_num_threads(arguments.threads)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        self._model, state = _start(arguments)
        self._step: int = state.get("step", 0)
        self._n_tokens: int = state.get("tokens", 0)
        self._seconds_before: float = state.get("seconds", 0.0)
        self._losses: list[float] = []
        teacher = load(arguments.teacher)[0].eval().requires_grad_(False) if arguments.teacher else None
        self._optimizer = _optimizer(self._model, arguments.lr)
        if "optimizer" in state:
            self._optimizer.load_state_dict(state["optimizer"])
        losses = objective(self._model, teacher)
        self._objective = losses if arguments.eager else torch.compile(losses, dynamic=False)
        self._began = time.time()

    def run(self) -> None:
        """Train until the schedule ends, or until the part of it that `until` names."""
        arguments = self._arguments
        print(arguments.preset, "parameters", self._model.n_parameters(), flush=True)
        self._began = time.time()
        source = batches(arguments.data, arguments.tokens, arguments.seed + self._step)
        while (done := self._share_done()) < min(1.0, arguments.until):
            rate = self._learning_rate(done)
            self._learn(*next(source), rate)
            if self._step % _REPORT_EVERY == 0:
                print(
                    f"step {self._step} loss {np.mean(self._losses[-25:]):.4f} lr {rate:.5f}"
                    f" tokens {self._n_tokens / 1e6:.2f}M minutes {self._seconds() / 60:.2f}",
                    flush=True,
                )
            if self._step % _SAVE_EVERY == 0:
                self._save()
        self._save()
        print(
            f"end: step {self._step} loss {np.mean(self._losses[-200:]):.4f} tokens {self._n_tokens}"
            f" minutes {self._seconds() / 60:.2f}",
            flush=True,
        )

    def _learn(self, ids: Tensor, weights: Tensor, rate: float) -> None:
        """One step of the optimizer on rows of T + 1 tokens."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        loss, plain = self._objective(
            ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), weights[:, 1:].contiguous()
        )
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), _MAX_GRADIENT)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
        self._n_tokens += ids.shape[0] * (ids.shape[1] - 1)
        self._losses.append(plain.item())

    def _seconds(self) -> float:
        """Time spent on this checkpoint, in earlier runs too."""
        return self._seconds_before + time.time() - self._began

    def _share_done(self) -> float:
        arguments = self._arguments
        share: float = max(self._step / arguments.steps, self._seconds() / (60 * arguments.minutes))
        return share

    def _learning_rate(self, done: float) -> float:
        warm = min(1.0, (self._step + 1) / self._arguments.warmup)
        cosine = 0.5 * (1 + math.cos(math.pi * done))
        rate: float = self._arguments.lr * warm * (_LAST_SHARE + (1 - _LAST_SHARE) * cosine)
        return rate

    def _save(self) -> None:
        state = {
            "model": self._model.state_dict(),
            "config": self._model.config.to_dict(),
            "step": self._step,
            "tokens": self._n_tokens,
            "seconds": self._seconds(),
            "optimizer": self._optimizer.state_dict(),
            "loss": float(np.mean(self._losses[-200:])) if self._losses else math.nan,
        }
        save(self._arguments.out, state)


def _start(arguments: argparse.Namespace) -> tuple[Model, dict[str, Any]]:
    """The model to begin with, and the state to go on from: empty for a new schedule."""
    if arguments.resume and arguments.out.exists():
        return load(arguments.out)
    if arguments.init:
        return load(arguments.init)[0], {}
    return Model(replace(PRESETS[arguments.preset], vocab=arguments.vocab)), {}


def _optimizer(model: Model, rate: float) -> torch.optim.Optimizer:
    matrices = [parameter for parameter in model.parameters() if is_matrix(parameter)]
    norms = [parameter for parameter in model.parameters() if not is_matrix(parameter)]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": norms, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--preset", choices=sorted(PRESETS), required=True)
    add("--vocab", type=int, default=Config.vocab, help="tokens of the tokenizer")
    add("--data", type=Path, default=Path("data"))
    add("--out", type=Path, required=True)
    add("--teacher", type=Path, help="a model with the same tokenizer")
    add("--minutes", type=float, default=50)
    add("--steps", type=int, default=6000)
    add("--tokens", type=int, default=4096, help="tokens per batch")
    add("--lr", type=float, default=2e-3)
    add("--warmup", type=int, default=100)
    add("--seed", type=int, default=3)
    add("--until", type=float, default=1.0, help="stop at this part of the schedule (go on with --resume)")
    add("--threads", type=int, default=2)
    add("--eager", action="store_true", help="do not use torch.compile")
    add("--resume", action="store_true", help="go on from --out")
    add("--init", type=Path, help="begin a new schedule from these weights")
    return parser.parse_args()


if __name__ == "__main__":
    Trainer(_parse()).run()
