"""The states of the engine process, seen from the front, and whether requests are accepted in each."""

import enum

from shared.errors import NotServingError


class EngineState(enum.Enum):
    """A `shared.supervisor.ChildState` with a description."""

    STARTING = "the model is being loaded"
    READY = "ready"
    RESTARTING = "the engine has died and is being started again"
    SLEEPING = "the model is not loaded, because nobody has asked for a while"
    WAKING = "the model is being loaded again"
    FAILED = "the engine cannot be started"
    STOPPED = "the server is shutting down"

    @property
    def takes_requests(self) -> bool:
        """Whether requests are accepted; they may have to wait."""
        return self not in {EngineState.STARTING, EngineState.FAILED, EngineState.STOPPED}

    def refusal(self) -> NotServingError:
        """The error that says why a request is refused."""
        return NotServingError(f"{self.value}: try again in a moment")
