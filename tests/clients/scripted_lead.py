"""A lead whose target writes prepared texts. This file runs like `python -m lead`.

The front, the tokenizers, the engine's loop and the model's memory are real. Only the logits are not.
They select the next token of a text that the prompt chooses. Drafts are verified as with any target.
"""

import json
import os
import sys
import time
from pathlib import Path

from lead import cli
from lead.engine import target_loading, worker
from lead.engine_client import engine_process
from shared.lifeline import end_with, lifeline

SCRIPT = "LLAMA_DUO_TEST_SCRIPT"
"""The variable with the path of a JSON file: a list of objects with `seen` (texts) and `says` (a text).

The target says the text of the last object whose `seen` are all in the prompt. Each prompt reads the file
again.
"""
STEP_SECONDS = "LLAMA_DUO_TEST_STEP_SECONDS"
"""The variable with the least seconds of a step. Without it so small a model is faster than any draft."""
_CERTAIN = 50.0
"""The distance to all other logits, too large for noise to change the choice."""


class Prompter:
    """Knows the next token of each slot from the tokens that a model decodes."""

    def __init__(self, vocabulary, script, n_slots):
        self._vocabulary, self._script = vocabulary, script
        self._texts = [[] for _ in range(n_slots)]
        self._n_prompts = [0] * n_slots
        self._answers = [[] for _ in range(n_slots)]
        self._stored = {}

    def decoded(self, span, logits):
        """Make the `logits` certain that a model has computed for a span."""
        text = self._texts[span.slot]
        text[span.start :] = span.tokens
        if span.is_prompt and span.n_logits:
            n_prompt = len(text) - span.n_logits + 1  # the others are of a draft
            self._n_prompts[span.slot] = n_prompt
            self._answers[span.slot] = self._answer(self._vocabulary.detokenize(text[:n_prompt]))
        first = len(text) - span.n_logits
        for n_held, row in enumerate(logits, first + 1):
            row[:] = 0.0
            row[self._next(span.slot, n_held)] = _CERTAIN

    def _next(self, slot, n_held):
        """The answer's token after the first `n_held`; the turn's end if they do not begin the answer."""
        said = self._texts[slot][self._n_prompts[slot] : n_held]
        answer = self._answers[slot]
        end = self._vocabulary.turn_end
        return answer[len(said)] if said == answer[: len(said)] and len(said) < len(answer) else end

    def _answer(self, prompt):
        script = json.loads(self._script.read_text("utf-8"))
        fitting = [each for each in script if all(text in prompt for text in each["seen"])]
        return self._vocabulary.tokenize(fitting[-1]["says"], add_special=False, parse_special=True)

    def trimmed(self, slot, n_keep):
        del self._texts[slot][n_keep:]

    def copied(self, source, slot, n_keep):
        self._texts[slot] = self._texts[source][:n_keep]

    def stored(self, slot, snapshot):
        self._stored[snapshot.key] = self._texts[slot][snapshot.start : snapshot.end]

    def restored(self, slot, snapshot, n_keep):
        if snapshot.kind == "text":
            self._texts[slot][snapshot.start :] = self._stored[snapshot.key]
        self.trimmed(slot, n_keep)


def scripted(model_class, script):
    """`model_class` with the logits of a `Prompter`."""

    class ScriptedModel(model_class):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.prompter = Prompter(self.vocabulary, script, self.n_slots)

        def launch(self, spans):
            finish = super().launch(spans)

            def scripted_logits():
                rows = finish()
                time.sleep(float(os.environ.get(STEP_SECONDS, "0")))
                for span, logits in zip(spans, rows, strict=True):
                    self.prompter.decoded(span, logits)
                return rows

            return scripted_logits

        def trim(self, slot, n_keep):
            super().trim(slot, n_keep)
            self.prompter.trimmed(slot, n_keep)

        def copy(self, source_slot, slot, n_keep):
            super().copy(source_slot, slot, n_keep)
            self.prompter.copied(source_slot, slot, n_keep)

        def store(self, slot, snapshot):
            super().store(slot, snapshot)
            self.prompter.stored(slot, snapshot)

        def restore(self, slot, snapshot, n_keep):
            super().restore(slot, snapshot, n_keep)
            self.prompter.restored(slot, snapshot, n_keep)

    return ScriptedModel


def run_engine():
    """Do what `python -m lead.engine` does, with a scripted target."""
    end_with(int(sys.argv.pop(1)))
    target_loading.Model = scripted(target_loading.Model, Path(os.environ[SCRIPT]))
    worker.main()


def run_lead():
    """Do what `python -m lead` does, with this file as the engine."""

    def command(_module, *arguments):
        return [sys.executable, __file__, "engine", str(lifeline()), *arguments]

    engine_process.child_command = command
    cli.main()


if __name__ == "__main__":
    if sys.argv[1:2] == ["engine"]:
        del sys.argv[1]
        run_engine()
    else:
        run_lead()
