"""Statistics of the answers of this session. Pure, no I/O."""

from collections import Counter

from chat.answer import Answer, GenerationStats


class SessionStats:
    def __init__(self) -> None:
        self.n_answers = 0
        self.total = GenerationStats()
        self.n_accepted_by_source: Counter[str] = Counter()
        self.last: Answer | None = None

    def add(self, answer: Answer) -> None:
        """Count one answer, whole or interrupted."""
        self.n_answers += 1
        self.total += answer.stats
        self.n_accepted_by_source += answer.n_accepted_by_source
        self.last = answer
