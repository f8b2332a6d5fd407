"""How models mark their reasoning."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """The marks around reasoning: what stands between is not the answer."""

    start: str
    end: str

    def is_open(self, prompt: str) -> bool:
        """Whether `prompt` leaves the model in the midst of reasoning: its template began it."""
        return prompt.rstrip().endswith(self.start)

    def resume(self, prompt: str, thought: str, content: str) -> str:
        """What to add to `prompt` for an answer that began with `thought` and `content`."""
        opened = self.is_open(prompt)
        if not thought and not opened:
            return content
        start = "" if opened else f"{self.start}\n"
        if not content:
            return start + thought
        return f"{start}{thought}\n{self.end}\n\n{content}"


_KNOWN = (
    ReasoningMarkers("<|channel|>analysis<|message|>", "<|end|>"),  # gpt-oss
    ReasoningMarkers("<think>", "</think>"),  # DeepSeek R1, Qwen 3, QwQ and most others
    ReasoningMarkers("[THINK]", "[/THINK]"),  # Magistral, Ministral
    ReasoningMarkers("<|START_THINKING|>", "<|END_THINKING|>"),  # Command R7B, Command A
    ReasoningMarkers("<seed:think>", "</seed:think>"),  # Seed-OSS
)


def detect_reasoning(template: str) -> ReasoningMarkers | None:
    """The marks that a chat template mentions; None for one of a model that does not reason."""
    if "<|channel|>" in template:
        return _KNOWN[0]
    return next((marks for marks in _KNOWN[1:] if marks.end in template or marks.start in template), None)
