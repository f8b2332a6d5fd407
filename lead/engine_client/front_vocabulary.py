"""The model's vocabulary in the front process, without llama.cpp and with little memory.

A tokenizer process describes the model. The engine sends the bytes of tokens before the first event with
these tokens.
"""

import asyncio
from collections.abc import Awaitable, Callable

from lead.engine.events import Pieces
from lead.tokenizer.jobs import ModelDescription
from shared.errors import RequestError, UnavailableError
from shared.protocol import VocabularyId


class KnownPieces:
    """The bytes of the tokens that the engine has sent so far."""

    def __init__(self) -> None:
        self._pieces: dict[int, bytes] = {}
        self._control: set[int] = set()

    def learn(self, event: Pieces) -> None:
        """Store the bytes of tokens, which are the same in every engine process."""
        self._pieces.update(enumerate(map(bytes.fromhex, event.pieces), event.first))
        self._control.update(event.control)

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Return the bytes of a token; empty for control tokens unless `special`."""
        return b"" if token in self._control and not special else self._pieces[token]


class FrontVocabulary:
    """The parts of the model's vocabulary that the front needs."""

    def __init__(
        self,
        model: ModelDescription,
        pieces: KnownPieces,
        identify: Callable[[], Awaitable[VocabularyId]],
    ) -> None:
        """`identify` asks a tokenizer process for the id of the vocabulary."""
        self.model = model
        self.info = model.info
        self.n_tokens = model.info.n_vocab
        self.bos, self.adds_bos = model.bos, model.adds_bos
        self.piece = pieces.piece
        self._identify = identify
        self._identifying = asyncio.Lock()
        self._id: VocabularyId | None = None

    async def identify(self) -> VocabularyId:
        """Return the id of the vocabulary that backs must have; raises UnavailableError."""
        async with self._identifying:
            if self._id is None:
                try:
                    self._id = await self._identify()
                except RequestError as error:  # --prepare-seconds is too short for it
                    raise UnavailableError(f"the vocabulary cannot be identified: {error}") from error
            return self._id

    def check(self, token: int) -> int:
        """Return `token`, or raise ValueError if the vocabulary does not have it."""
        if not 0 <= token < self.n_tokens:
            raise ValueError(f"token {token} is not in the vocabulary of {self.n_tokens} tokens")
        return token
