"""The exceptions of this project, in one tree. Every message is a sentence that a person can act on."""

from collections.abc import Sequence


class DuoError(Exception):
    """The base of all exceptions that llama-duo raises on purpose."""


class ConfigError(DuoError):
    """A person has to change an option or a file."""


class LibraryError(ConfigError):
    """llama.cpp's library cannot be loaded, or has no code for this CPU."""


class ModelLoadError(ConfigError):
    """A GGUF file cannot be loaded."""


class MissingFunctionError(LibraryError, ModelLoadError, AttributeError):
    """The loaded library has no function of this name.

    Also an AttributeError, for callers that can do without.
    """

    def __init__(self, name: str, library: str) -> None:
        super().__init__(
            f"{library} has no {name}, which is needed for this: it is another version of llama.cpp than "
            "that of the installed llama-cpp-python"
        )


class ProtocolError(DuoError):
    """A peer sent what the protocol does not allow."""


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
        """option: that bounds prompts to less than the context has."""
        reason = f", because of {option}" if option else ""
        super().__init__(
            f"the request ({n_prompt} tokens) exceeds the available context size ({n_ctx} tokens{reason})",
            "prompt",
            self.CODE,
        )
        self.n_prompt = n_prompt
        self.n_ctx = n_ctx


class UnsupportedError(DuoError):
    """A feature of llama-server that the lead does not have, or not with its current options: HTTP 501."""


class UnavailableError(DuoError):
    """HTTP 503: the model is being loaded, or the engine has died too often; a retry may succeed later."""


class QueueFullError(UnavailableError):
    """The maximal number of requests is waiting for a slot."""


class NotServingError(UnavailableError):
    """The lead serves no requests yet, or any more: another lead may answer the same request at once.

    HEADER tells routers so. Without it, 503 may be caused by the request itself, which would kill the next
    lead's engines, too.
    """

    HEADER = "x-lead-not-serving"


class PendingAnswerError(DuoError):
    """Another process has not answered yet; the same question may be asked again later."""


class ServerError(DuoError):
    """The request is valid, but failed in the server: HTTP 500."""


class EngineError(DuoError):
    """The lead's engine dies repeatedly: the lead has to end."""


class IntegrityError(DuoError):
    """A program's own records contradict each other: a bug, after which it must not continue."""


class DecodeError(DuoError):
    """llama_decode did not return 0."""


class KvCacheFullError(DecodeError):
    """llama_decode returned 1: no KV slot for the batch. The memory is unchanged.

    Exception: the slots in `lost` are empty, as what an earlier pass had decoded could not be removed.
    """

    def __init__(self, message: str, lost: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.lost = lost


class WindowLostError(DecodeError):
    """The sliding windows of some slots were overwritten: these must be emptied. Nothing was decoded."""

    def __init__(self, slots: list[int]) -> None:
        super().__init__(f"the sliding windows of slots {slots} were overwritten")
        self.slots = slots


class DecodeAbortedError(DecodeError):
    """llama_decode returned 2: aborted; the ubatches already processed remain in the memory."""


class DecodeFatalError(DecodeError):
    """llama_decode returned a negative number: the context cannot be trusted any more."""


class AwayError(DuoError):
    """A machine or service cannot be reached now; a retry may succeed later."""


class NoLeadError(ConfigError):
    """No lead was found; a later search may find one."""


class SeveralLeadsError(ConfigError):
    """Several leads were found: a person has to choose one, because it gets a key and texts."""
