"""A question to a running engine: what the front asks, beside the engine's sequences, and gets one reply to.

`lead.generation.engine_client` asks it; what `lead.engine.side_jobs` has registered for its type answers it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel

R = TypeVar("R", bound=BaseModel)


class EngineQuestion(BaseModel, Generic[R], frozen=True):
    """A question to the engine, told by its type and fields; the type argument is that of the reply."""

    only_looks: ClassVar[bool] = False
    """Nothing changes by it. Equal questions share a reply, and a sleeping engine is not woken for it."""

    @classmethod
    def read_reply(cls, reply: Mapping[str, Any]) -> R:
        base: type[BaseModel] = cls.__bases__[0]  # `EngineQuestion[...]`
        model: type[R] = base.__pydantic_generic_metadata__["args"][0]
        return model.model_validate(reply)
