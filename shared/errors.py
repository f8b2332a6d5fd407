"""What can go wrong, in one tree.

    DuoError                     everything this project raises on purpose
    ├── ConfigError              a setting or a file that a person has to change
    │   └── ModelLoadError       a GGUF that cannot be loaded
    ├── ProtocolError            a peer sent what the protocol does not allow
    ├── RequestError             a client's request is wrong: HTTP 400, names the field
    │   └── GrammarTooSlowError  its grammar takes too long where the text has come to
    ├── UnsupportedError         what a client asks for is not done here: HTTP 501
    ├── UnavailableError         the engine is not there (yet, or again): HTTP 503
    │   └── QueueFullError       as many requests wait as may: HTTP 503
    ├── ServerError              a request that fails without being at fault: HTTP 500
    ├── IntegrityError           records contradict each other: the engine has to be started again
    └── DecodeError              llama_decode did not return 0
        ├── KvCacheFullError     1: no room in the KV cache, nothing was changed: retry with less
        ├── DecodeAbortedError   2: aborted, part of the batch is in the cache
        └── DecodeFatalError     < 0: the engine has to be started again

Every message is a sentence that a person can act on.
"""


class DuoError(Exception):
    """The root: catch this to catch what llama-duo raises on purpose."""


class ConfigError(DuoError):
    """A setting or a file that a person has to change."""


class ModelLoadError(ConfigError):
    """A GGUF file that cannot be loaded."""


class ProtocolError(DuoError):
    """A peer sent what the protocol does not allow."""


class RequestError(DuoError):
    """A client's request is wrong; `param` names the field at fault."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class GrammarTooSlowError(RequestError):
    """The ways in which a grammar can be read have become too many."""


class UnsupportedError(DuoError):
    """What a client asks for is something that llama-server can do and the lead cannot, or not as started."""


class UnavailableError(DuoError):
    """The engine is not there yet, or not any more; the same request may succeed later."""


class QueueFullError(UnavailableError):
    """As many requests wait for a slot as may."""


class ServerError(DuoError):
    """A request fails and is not at fault."""


class IntegrityError(DuoError):
    """A program's own records contradict each other: a bug, after which it must not go on."""


class DecodeError(DuoError):
    """llama_decode did not return 0."""


class KvCacheFullError(DecodeError):
    """llama_decode returned 1: no KV slot for the batch; the memory is as it was before."""


class DecodeAbortedError(DecodeError):
    """llama_decode returned 2: aborted; the ubatches already processed remain in the memory."""


class DecodeFatalError(DecodeError):
    """llama_decode returned less than 0: the context cannot be trusted any more."""
