"""Prints generated text to the lead's terminal."""

import contextlib
import os
import queue
import threading
from typing import TextIO

from lead.engine.events import Committed
from lead.engine_client.assembler import Assembler
from lead.engine_client.front_vocabulary import FrontVocabulary
from lead.engine_client.sequences import LiveSequence
from lead.settings.choices import Print
from shared.terminal import sanitize, wants_color

ACCEPTED = "\x1b[32m"
_REJECTED = "\x1b[31m"
RESET = "\x1b[0m"
_MAX_WAITING = 4096
"""The most pieces of text that wait for a stopped terminal; further ones are dropped."""


class Printer:
    """An observer of `Sequences` that prints one sequence at a time, until it ends.

    Other sequences that run meanwhile, and private ones, are not printed.
    """

    def __init__(self, vocabulary: FrontVocabulary, mode: Print, out: TextIO) -> None:
        self._vocabulary = vocabulary
        self._mode = mode
        self._color = wants_color(out, os.environ)
        self._writer = _TerminalWriter(out)
        self._shown: LiveSequence | None = None
        self._assembler = Assembler(vocabulary.piece, [])

    def on_step(self, sequence: LiveSequence, step: Committed) -> None:
        if self._mode == "none" or sequence.private:
            return
        if self._shown is None:
            self._shown = sequence
            self._assembler = Assembler(self._vocabulary.piece, [])
        if self._shown is not sequence:
            return
        tokens = self._assembler.push(step)
        self._show("".join(token.text for token in tokens if token.source), ACCEPTED)
        if self._mode == "all":
            rejected = b"".join(self._vocabulary.piece(token) for token in step.rejected)
            self._show(rejected.decode("utf-8", "replace"), _REJECTED)
        self._show("".join(token.text for token in tokens if not token.source), "")

    def on_end(self, sequence: LiveSequence) -> None:
        if self._shown is sequence:
            self._shown = None
            self._writer.put("\n")

    def _show(self, text: str, color: str) -> None:
        if shown := sanitize(text):
            self._writer.put(f"{color}{shown}{RESET}" if color and self._color else shown)


class _TerminalWriter:
    """Writes in a thread: a terminal stopped with Ctrl-S blocks its writer but must not block the lead."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._queue: queue.Queue[str] = queue.Queue(_MAX_WAITING)
        threading.Thread(target=self._run, name="printer", daemon=True).start()

    def put(self, text: str) -> None:
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(text)

    def _run(self) -> None:
        encoding = self._out.encoding or "utf-8"
        while True:
            text = self._queue.get()
            try:
                self._out.write(text.encode(encoding, "replace").decode(encoding))
                self._out.flush()
            except (OSError, ValueError):
                return  # the terminal is gone
