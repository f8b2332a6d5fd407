"""The exceptions of this project, in one tree. Every message is a sentence that a person can act on."""

from collections.abc import Sequence


class DuoError(Exception):
    """The base of all exceptions that llama-duo raises on purpose."""


class ConfigError(DuoError):
    """An option or a file is wrong, and a person must change it."""


class LibraryError(ConfigError):
    """llama.cpp's library cannot be loaded, or has no code for this CPU."""


class ModelLoadError(ConfigError):
    """A GGUF file cannot be loaded."""


class MissingFunctionError(LibraryError, ModelLoadError, AttributeError):
    """The loaded library has no function of this name.

    It is also an AttributeError, for callers that can do without the function.
    """

    def __init__(self, name: str, library: str) -> None:
        super().__init__(
            f"{library} has no {name}. Its version of llama.cpp does not match the installed llama-cpp-python"
        )


class ProtocolError(DuoError):
    """A peer sent a message that the protocol does not allow."""


class VocabularyError(ProtocolError):
    """A back's vocabulary differs from the lead's."""


class RequestError(DuoError):
    """A client's request is invalid: HTTP 400. `param` names the field at fault."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ContextExceededError(RequestError):
    """The prompt leaves no room for an answer: it must have fewer than `n_ctx` tokens."""

    CODE = "context_length_exceeded"

    def __init__(self, n_prompt: int, n_ctx: int, option: str = "") -> None:
        """option: the option that limits prompts to less than the context; empty: there is none."""
        reason = f", because of {option}" if option else ""
        super().__init__(
            f"the request ({n_prompt} tokens) exceeds the available context size ({n_ctx} tokens{reason})",
            "prompt",
            self.CODE,
        )
        self.n_prompt = n_prompt
        self.n_ctx = n_ctx


class UnsupportedError(DuoError):
    """A feature of llama-server that the lead lacks, or lacks with its current options: HTTP 501."""


class UnavailableError(DuoError):
    """The model is being loaded, or the engine has died too often: HTTP 503. A retry may succeed."""


class QueueFullError(UnavailableError):
    """The maximum number of requests is waiting for a slot."""


class NotServingError(UnavailableError):
    """The lead does not serve requests yet, or no longer; another lead may answer the same request.

    HEADER tells routers so. A 503 without it may be caused by the request itself, which would kill the next
    lead's engine, too.
    """

    HEADER = "x-lead-not-serving"


class PendingAnswerError(DuoError):
    """Another process has not answered yet; ask the same question again later."""


class ServerError(DuoError):
    """The request is valid, but failed in the server: HTTP 500."""


class UnusableModelError(ServerError):
    """The file of a model is damaged: HTTP 500, because a retry would not help."""


class EngineError(DuoError):
    """The lead's engine dies repeatedly, so the lead must end."""


class IntegrityError(DuoError):
    """A program's own records contradict each other: a bug, after which it must not continue."""


class DecodeError(DuoError):
    """llama_decode did not return 0."""


class KvCacheFullError(DecodeError):
    """llama_decode returned 1: no KV slot for the batch. The memory is unchanged.

    Exception: the slots in `lost` are empty, because tokens of an earlier pass could not be removed.
    """

    def __init__(self, message: str, lost: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.lost = lost


class WindowLostError(DecodeError):
    """The sliding windows of some slots were overwritten, so these slots must be emptied.

    Nothing was decoded.
    """

    def __init__(self, slots: list[int]) -> None:
        super().__init__(f"the sliding windows of slots {slots} were overwritten")
        self.slots = slots


class DecodeAbortedError(DecodeError):
    """llama_decode returned 2: aborted. Ubatches that were already processed remain in the memory."""


class DecodeFatalError(DecodeError):
    """llama_decode returned a negative number, after which the context is unusable."""


class AwayError(DuoError):
    """A machine or service cannot be reached now; a retry may succeed."""


class NoLeadError(ConfigError):
    """No lead was found; a later search may find one."""


class SeveralLeadsError(ConfigError):
    """Several leads were found. A person must choose the lead that gets the key and the texts."""
