"""The chat template of a model, or the one chosen in its place."""

from lead.chat.template import ChatTemplate
from shared.errors import ConfigError
from shared.llama.vocabulary import Vocabulary


def model_template(vocabulary: Vocabulary, chosen: str | None) -> tuple[ChatTemplate, str | None]:
    """The chosen one (raises ConfigError if it is invalid), or the model's own, or ChatML.

    Also says why not the model's own, where that is so.
    """
    bos, eos = (
        "" if token is None else vocabulary.piece(token, special=True).decode("utf-8", "replace")
        for token in (vocabulary.bos, vocabulary.eos)
    )
    if chosen is not None:
        return ChatTemplate(chosen, bos, eos), None
    info = vocabulary.info
    try:
        own = info.chat_template or info.tool_template
        return ChatTemplate(own, bos, eos, info.tool_template), None
    except ConfigError as error:
        return ChatTemplate(None, bos, eos), str(error)
