"""Texts on which `lead plan` tries drafts."""

from lead.chat.request_parts import ChatMessage
from lead.chat.template import TemplateInput, model_template
from shared.errors import RequestError
from shared.llama.vocabulary import Vocabulary

_QUESTIONS = (
    "Tell me a story about a fox who gets lost.",
    "What is speculative decoding?",
    "Tell me a bedtime story about a whale.",
    "How does a for loop work in Python?",
)
_BEGINNINGS = (
    "Once upon a time, there was a little girl who lived near the sea. One day",
    "To install the program on your computer, first",
    "The history of the city begins in the twelfth century, when",
    'def read_lines(path):\n    """Return the lines of a file as a list."""\n',
)


def sample_texts(vocabulary: Vocabulary, chosen_template: str | None = None) -> list[str]:
    """Questions in the model's chat template, or beginnings of texts for a model without one.

    Raises ConfigError if the template that was chosen is invalid.
    """
    if chosen_template is None and vocabulary.info.chat_template is None:
        return list(_BEGINNINGS)
    template, _ = model_template(vocabulary, chosen_template)
    try:
        return [template.render(_asked(question)) for question in _QUESTIONS]
    except RequestError:
        return list(_BEGINNINGS)


def _asked(question: str) -> TemplateInput:
    return TemplateInput([ChatMessage.model_validate({"role": "user", "content": question})])
