"""Images in requests: each becomes a marker in its message's text, and rows of the prompt.

Tokenizers, logs and other programs get only the marker, a word that no client can guess. The engine gets the
embeddings that an `ImageReader` has computed, one for each row.
"""

import asyncio
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from fastapi import Request

from lead.chat_format.request import ConversationFields
from lead.chat_format.request_parts import UNSEEN, ChatMessage, ContentPart
from lead.http.client_gone import cancel_on_disconnect
from lead.http.json_route import client_of
from lead.tokenizer.fair_queue import Client
from shared.errors import RequestError
from shared.image_span import ImageMemory, ImageSpan

if TYPE_CHECKING:
    from array import array

    from lead.http.services import Services

B = TypeVar("B", bound=ConversationFields)

SHOWN = "<__media__>"
"""The text shown for an image where a prompt is displayed, as in llama-server."""
_DATA = "data:"
_BASE64 = ";base64"


@dataclass(frozen=True, eq=False)
class EncodedImage:
    """The model's input for an image. Its embeddings stay in memory as long as this object exists.

    marker: replaces the image in texts. tokens: the tokens around the image, and the identities of its rows
    (`shared.image_span`). spans: the positions of the rows in `tokens`.
    """

    marker: str
    tokens: "array[int]"
    spans: tuple[ImageSpan, ...]

    def spans_at(self, start: int) -> Iterator[ImageSpan]:
        """Yield the `spans`, shifted for `tokens` that begin at position `start`."""
        for span in self.spans:
            yield span.model_copy(update={"start": start + span.start})


class ImageReader(Protocol):
    """Encodes images for the model (`--mmproj`). max_images: the maximum number of images in a request."""

    max_images: int

    async def memory(self) -> ImageMemory:
        """Wait until the memory for embeddings exists, and return it; raises ModelLoadError."""

    async def read(self, client: Client, data: bytes) -> EncodedImage:
        """Encode the image file `data`; raises RequestError, UnavailableError, UnsupportedError."""

    async def run(self) -> None:
        """Keep the encoder process running until cancelled."""


async def with_markers(
    body: B, http_request: Request, services: "Services"
) -> tuple[B, Sequence[EncodedImage]]:
    """Return the conversation with markers in place of images, and the encoded images; raises
    RequestError.
    """
    urls = [(n, part.image_url.url) for n, part in _image_parts(body.messages) if part.image_url]
    if not urls:
        return body, ()
    reader = services.images
    if reader is None:
        return _with_content(body, [_unseen(*each) for each in enumerate(body.messages)]), ()
    if len(urls) > reader.max_images:
        raise RequestError(
            f"messages: {len(urls)} images are too many. The maximum is {reader.max_images} (--max-images)",
            "messages",
        )
    files = await asyncio.to_thread(lambda: [_decoded(n, url) for n, url in urls])

    async def read_all() -> list[EncodedImage]:
        return [await reader.read(client_of(http_request), file) for file in files]

    images = await cancel_on_disconnect(http_request, read_all())
    markers = iter([image.marker for image in images])
    return _with_content(body, [_marked(each, markers) for each in body.messages]), images


def without_markers(text: bytes, images: Sequence[EncodedImage]) -> bytes:
    """Return a prompt's text for display, with `SHOWN` in place of the markers of images."""
    for image in images:
        text = text.replace(image.marker.encode(), SHOWN.encode())
    return text


def _image_parts(messages: Sequence[ChatMessage]) -> Iterator[tuple[int, ContentPart]]:
    for n, message in enumerate(messages):
        for part in message.content if isinstance(message.content, list) else ():
            if part.image_url is not None:
                yield n, part


def _with_content(body: B, messages: list[ChatMessage]) -> B:
    return body.model_copy(update={"messages": messages})


def _unseen(n: int, message: ChatMessage) -> ChatMessage:
    """Return the message for a model that reads only text.

    Images from a tool are replaced by `UNSEEN`; raises RequestError for other images.
    """
    if not any(_image_parts([message])):
        return message
    if message.role != "tool":
        raise RequestError(
            f"messages.{n}.content: image input is not supported. This model reads only text", "messages"
        )
    assert isinstance(message.content, list)
    note = ContentPart(text=UNSEEN["text"])
    content = [part if part.image_url is None else note for part in message.content]
    return message.model_copy(update={"content": content})


def _marked(message: ChatMessage, markers: Iterator[str]) -> ChatMessage:
    """Return the message with its parts as one text, joined as in llama.cpp (common/chat.cpp).

    There is no line break beside an image.
    """
    if not any(_image_parts([message])):
        return message
    assert isinstance(message.content, list)
    text, is_after_image = "", False
    for part in message.content:
        if part.image_url is not None:
            text += next(markers)
        else:
            text += ("\n" if text and not is_after_image else "") + part.value
        is_after_image = part.image_url is not None
    return message.model_copy(update={"content": text})


def _decoded(n: int, url: str) -> bytes:
    """Return the bytes in a data: URL; raises RequestError."""
    header, comma, data = url.partition(",")
    if not url.startswith(_DATA) or not comma or not header.endswith(_BASE64):
        raise RequestError(
            f"messages.{n}.content: this lead does not download images. Send the image in the "
            "request (data:image/png;base64,…)",
            "messages",
        )
    try:
        return binascii.a2b_base64(data)
    except (ValueError, binascii.Error):
        raise RequestError(f"messages.{n}.content: the image is not valid base64", "messages") from None
