"""Reading an event stream in a test."""

import json


def events(response):
    """The JSON objects of a stream, and the string "[DONE]" where it stands."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def text(chunks):
    """The text of a streamed chat answer."""
    choices = [choice for chunk in chunks if isinstance(chunk, dict) for choice in chunk.get("choices", [])]
    return "".join(choice["delta"].get("content") or "" for choice in choices)
