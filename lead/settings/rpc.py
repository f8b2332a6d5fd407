"""Machines that have layers of the target: llama.cpp's RPC."""

from typing import Self

from pydantic import Field, field_validator, model_validator

from shared.llama import rpc_backend
from shared.rpc_probe import split_address
from shared.settings.base import CommaList, OptionError, OptionGroup

MOST_WORKERS = 16
"""GGML_RPC_MAX_SERVERS in ggml-rpc.h."""


class RpcOptions(OptionGroup):
    """For models that no single machine holds."""

    rpc: CommaList = Field(
        (),
        description="RPC workers, comma-separated (host:port): machines that run `lead rpc-worker` (or "
        "llama.cpp's rpc-server) and get the first layers of --n-gpu-layers, divided by their free memory or "
        "--tensor-split. Neither encrypted nor authenticated: loopback, a tunnel or a closed network only. "
        "Needs a llama.cpp with RPC: CMAKE_ARGS=-DGGML_RPC=ON make setup",
    )
    rpc_timeout: float = Field(
        60.0,
        gt=0,
        le=86_400,
        description="seconds to wait for an RPC worker that cannot be reached, at the start and after it was "
        "lost; answers wait, too",
    )

    @field_validator("rpc")
    @classmethod
    def _check_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            split_address(address)
        return value

    @model_validator(mode="after")
    def _check_number(self) -> Self:
        if len(self.rpc) != len(set(self.rpc)) or len(self.rpc) > MOST_WORKERS:
            raise OptionError("rpc", f"at most {MOST_WORKERS} workers, each named once")
        return self

    def check_built(self) -> None:
        """Raises ConfigError if there are workers, and llama.cpp cannot use any."""
        if self.rpc:
            rpc_backend.require()
