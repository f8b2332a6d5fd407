import asyncio
import contextlib

import pytest

from lead.images.image_encoder import ImageEncoder
from lead.images.messages import EncoderOptions
from lead.tokenizer.fair_queue import Client


@pytest.fixture(scope="session")
def sight(tiny_sight, libmtmd):  # noqa: ARG001 - it is there
    """The model and the projector of a kind."""

    def make(kind):
        model, projector = tiny_sight(kind)
        return EncoderOptions(model=model, projector=projector)

    return make


class Sight:
    """An `ImageEncoder` that runs."""

    def __init__(self, encoder):
        self.encoder = encoder

    async def read(self, data, client="a"):
        return await self.encoder.read(Client(client), data)

    @property
    def pid(self):
        return self.encoder._keeper.child.pid

    def rows(self, image):
        """The bytes of an image's embeddings."""
        return self.encoder._memory.read(image.stored)


@pytest.fixture
async def see():
    """Starts encoders."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(options, **changes):
            encoder = ImageEncoder(options, **{"max_images": 8, "cache_bytes": 1 << 20} | changes)
            running = asyncio.ensure_future(encoder.run())

            async def end():
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

            stack.push_async_callback(end)
            return Sight(encoder)

        yield start
