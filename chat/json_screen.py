"""Answers for programs: one line of JSON each on stdout; errors go to stderr."""

import json

from chat import report
from chat.answer import Answer
from chat.render import Screen


class JsonScreen(Screen):
    def token(self, text: str, source: str | None, *, is_thought: bool = False, more: bool = False) -> None:
        """Do nothing: the line is written when the answer is complete."""

    def end_answer(self, *, empty: bool = False) -> None:
        """Do nothing."""

    def show_summary(self, answer: Answer) -> None:
        self._write(self._out, json.dumps(report.record(answer)) + "\n")
