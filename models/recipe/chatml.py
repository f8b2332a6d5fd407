"""The chat format: ChatML, as in the template that the exported files carry."""

Message = dict[str, str]

CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def prompt(messages: list[Message]) -> str:
    """The text after which the assistant answers."""
    text = "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in messages)
    return text + "<|im_start|>assistant\n"
