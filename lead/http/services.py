"""The objects that HTTP routes use, available once the vocabulary has been read."""

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request

from lead.backs.registry import Backs
from lead.chat_format.answer_memory import AnswerMemory
from lead.engine.explain import Explain
from lead.engine_client.engine_client import EngineClient
from lead.engine_client.front_vocabulary import FrontVocabulary
from lead.engine_client.sequences import Sequences
from lead.http.images import ImageReader
from lead.settings.lead_settings import LeadSettings
from lead.tokenizer.pool import TokenizerPool
from shared.errors import NotServingError, UnavailableError


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of a lead that its routes use."""

    vocabulary: FrontVocabulary
    tokenizer: TokenizerPool
    engine: EngineClient
    sequences: Sequences
    backs: Backs
    settings: LeadSettings = field(default_factory=LeadSettings)
    answers: AnswerMemory = field(default_factory=AnswerMemory)
    images: ImageReader | None = None  # None: the model reads text only
    started_at: int = field(default_factory=lambda: int(time.time()))

    @property
    def aliases(self) -> tuple[str, ...]:
        """The names of the model, at least one. Requests are not limited to these names."""
        return self.settings.aliases(self.vocabulary.info.name)

    @property
    def alias(self) -> str:
        """The model's name in responses: the first in alphabetical order, as in llama-server."""
        return self.aliases[0]

    @property
    def n_slots(self) -> int:
        return self.engine.ready.n_slots if self.engine.ready else 0

    @property
    def n_ctx(self) -> int:
        """The size of one sequence's context in tokens; raises NotServingError while it is unknown."""
        if self.engine.ready is None:
            raise self.engine.state.refusal()
        return self.engine.ready.n_ctx_sequence

    async def explain(self) -> dict[str, Any] | None:
        """Return the planner's report; None if there is no engine, or it does not reply in time."""
        with contextlib.suppress(UnavailableError):
            return (await self.engine.ask(Explain())).report
        return None


def get_services(request: Request) -> Services:
    """Return the services for a handler that needs the vocabulary.

    Raises NotServingError until the vocabulary has been read.
    """
    services: Services | None = request.app.state.services
    if services is None:
        raise NotServingError("Loading model")
    return services


def get_ready_services(request: Request) -> Services:
    """Return the services for a handler that needs the engine.

    Raises NotServingError until the engine has been ready once. Later, while the engine is restarted or
    woken, requests wait for it.
    """
    services = get_services(request)
    if not services.engine.state.takes_requests:
        raise services.engine.state.refusal()
    return services
