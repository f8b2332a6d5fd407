"""The markers around a model's reasoning."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """start, end: around the reasoning. turn, content: before content, and between it and reasoning.

    interleaved: reasoning may also follow content.
    """

    start: str
    end: str
    content: str = ""
    turn: str = ""
    interleaved: bool = False

    def is_open(self, prompt: str) -> bool:
        """Whether `prompt` ends inside reasoning: the template began it."""
        return prompt.rstrip().endswith(self.start)

    def resume(self, prompt: str, reasoning: str, content: str) -> str:
        """What to append to `prompt` so that the model continues after `reasoning` and `content`."""
        opened = self.is_open(prompt)
        if not reasoning and not opened:
            return self.content + content
        start = "" if opened else self.start
        if self.content:
            return start + reasoning + (self.end + self.turn + self.content + content if content else "")
        start = start and f"{start}\n"
        return f"{start}{reasoning}\n{self.end}\n\n{content}" if content else start + reasoning


_HARMONY = ReasoningMarkers(
    "<|channel|>analysis<|message|>",
    "<|end|>",
    content="<|channel|>final<|message|>",
    turn="<|start|>assistant",
    interleaved=True,
)
_THINK = ReasoningMarkers("<think>", "</think>")
_BY_SIGN = {
    "<|channel|>": _HARMONY,
    "<think>": _THINK,  # DeepSeek R1, Qwen 3, QwQ and most others
    "</think>": _THINK,
    "<think{}>": ReasoningMarkers("<think:opensource>", "</think:opensource>"),  # Hunyuan 3
    "[THINK]": ReasoningMarkers("[THINK]", "[/THINK]"),  # Magistral, Ministral
    "<|START_THINKING|>": ReasoningMarkers("<|START_THINKING|>", "<|END_THINKING|>"),  # Command R7B, A
    "<seed:think>": ReasoningMarkers("<seed:think>", "</seed:think>"),  # Seed-OSS
    "<mm:think>": ReasoningMarkers("<mm:think>", "</mm:think>"),  # MiniMax M3
    "<|channel>thought": ReasoningMarkers("<|channel>thought", "<channel|>", interleaved=True),  # Gemma 4
    "<|inner_prefix|>": ReasoningMarkers("<|inner_prefix|>", "<|inner_suffix|>", interleaved=True),  # Apertus
    "<|think|>": ReasoningMarkers("<|think|>", "<|end|>", interleaved=True),  # Solar Open
    "Here are my reasoning steps:": ReasoningMarkers(
        "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"
    ),  # Apriel 1.6
}
"""By a text in the chat template; the first one counts."""


def detect_reasoning(template: str) -> ReasoningMarkers | None:
    """The markers of a chat template's model; None for a model that does not reason."""
    return next((markers for sign, markers in _BY_SIGN.items() if sign in template), None)
