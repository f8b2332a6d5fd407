"""What the engine's process is doing, as the front sees it, and whether requests are taken meanwhile."""

import enum

from shared.errors import NotServingError


class EngineState(enum.Enum):
    """`MOVES` says which follows which."""

    STARTING = "the model is being loaded"
    READY = "ready"
    RESTARTING = "the engine has died and is being started again"
    SLEEPING = "the model is not loaded, because nobody has asked for a while"
    WAKING = "the model is being loaded again"
    FAILED = "the engine cannot be started"
    STOPPED = "the server is shutting down"

    @property
    def takes_requests(self) -> bool:
        """They may have to wait."""
        return self in _SERVING

    def refusal(self) -> NotServingError:
        """Why a request is not taken."""
        return NotServingError(f"{self.value}: try again in a moment")


MOVES = {
    EngineState.STARTING: {EngineState.STARTING, EngineState.READY, EngineState.FAILED, EngineState.STOPPED},
    EngineState.READY: {EngineState.RESTARTING, EngineState.SLEEPING, EngineState.STOPPED},
    EngineState.RESTARTING: {
        EngineState.RESTARTING,
        EngineState.READY,
        EngineState.FAILED,
        EngineState.STOPPED,
    },
    EngineState.SLEEPING: {EngineState.WAKING, EngineState.STOPPED},
    EngineState.WAKING: {EngineState.READY, EngineState.RESTARTING, EngineState.STOPPED},
    EngineState.FAILED: {EngineState.STOPPED},
    EngineState.STOPPED: {EngineState.STOPPED},
}
"""A process that dies before it is ready is STARTING or RESTARTING again."""
_SERVING = {EngineState.READY, EngineState.RESTARTING, EngineState.SLEEPING, EngineState.WAKING}
