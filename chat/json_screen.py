"""Answers for programs: one line of JSON each on stdout; what goes wrong is said on stderr, as ever."""

import json

from chat import report
from chat.answer import Answer
from chat.render import Screen


class JsonScreen(Screen):
    def token(self, text: str, source: str | None, *, is_thought: bool = False, more: bool = False) -> None:
        """Nothing: the line comes when the answer is whole."""

    def end_answer(self, *, empty: bool = False) -> None:
        """Nothing."""

    def sum_up(self, answer: Answer) -> None:
        self._write(self._out, json.dumps(report.record(answer)) + "\n")
