"""Questions that the front asks a running engine, except about a sequence's tokens; each gets one reply.

`lead.engine_client.engine_client` sends a question. The job that is registered for its type in
`lead.engine.side_jobs` answers it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel

R = TypeVar("R", bound=BaseModel)


class EngineQuestion(BaseModel, Generic[R], frozen=True):
    """A question to the engine, identified by its type; the type argument is the type of the reply."""

    only_looks: ClassVar[bool] = False
    """True if the question changes nothing. Then it wakes no sleeping engine, and equal questions share a
    reply."""

    @classmethod
    def read_reply(cls, reply: Mapping[str, Any]) -> R:
        base: type[BaseModel] = cls.__bases__[0]  # `EngineQuestion[...]`
        model: type[R] = base.__pydantic_generic_metadata__["args"][0]
        return model.model_validate(reply)
