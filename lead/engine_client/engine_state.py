"""The states of the engine process as the front sees them, and whether requests are accepted."""

import enum

from shared.errors import NotServingError


class EngineState(enum.Enum):
    """A `shared.supervisor.ChildState`; the value is a description for people."""

    STARTING = "the model is loading"
    READY = "ready"
    RESTARTING = "the engine died and is restarting"
    SLEEPING = "the idle model was unloaded"
    WAKING = "the model is loading again"
    FAILED = "the engine cannot start"
    STOPPED = "the server is shutting down"

    @property
    def takes_requests(self) -> bool:
        """True if requests are accepted; they may have to wait."""
        return self not in {EngineState.STARTING, EngineState.FAILED, EngineState.STOPPED}

    def refusal(self) -> NotServingError:
        """Return the error for a refused request."""
        return NotServingError(f"{self.value}: try again in a moment")
