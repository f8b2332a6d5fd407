"""The arguments of `serve run fleet.app:app NAME=VALUE …`."""

import shlex
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field


class FleetSettings(BaseModel, extra="forbid"):
    """A fleet: leads with the same options, and backs that draft for the leads that gain most."""

    lead: str = Field("", description="options of every lead, as on its command line")
    back: str = Field("", description="options of every back")
    slots: int = Field(4, ge=1, description="parallel requests of a lead (--parallel)")
    min_leads: int = Field(1, ge=1, description="minimum number of leads")
    max_leads: int = Field(1, ge=1, description="maximum number of leads")
    backs: int = Field(0, ge=0, description="number of backs for all leads together")
    sequences_per_back: float = Field(
        2.0, gt=0, description="number of sequences per back before another back is used"
    )
    move_seconds: float = Field(10.0, gt=0, description="interval between checks whether a back should move")
    rpc_workers: int = Field(
        0, ge=0, le=16, description="number of machines per lead that hold some of its layers"
    )
    rpc_worker: str = Field("", description="options of every RPC worker, as --device CUDA0")
    host: str = Field(
        "127.0.0.1",
        description="address on which leads listen; node: the node's address, which other machines reach. "
        "Default: this machine only",
    )
    max_body_bytes: int = Field(4 << 20, ge=1024, le=1 << 30, description="maximum size of a request body")
    key_file: Path | None = Field(None, description="--api-key-file of the leads, on every node")
    lead_cpus: float = Field(1.0, ge=0, description="CPUs that Ray reserves for a lead")
    lead_gpus: float = Field(0.0, ge=0, description="GPUs that Ray reserves for a lead")
    back_cpus: float = Field(1.0, ge=0, description="CPUs that Ray reserves for a back")
    back_gpus: float = Field(0.0, ge=0, description="GPUs that Ray reserves for a back")
    rpc_placement: Literal["STRICT_SPREAD", "PACK"] = Field(
        "STRICT_SPREAD",
        description="placement of a lead and its RPC workers: separate nodes, or as close as possible",
    )
    rpc_resources: dict[str, float] = Field(
        {"CPU": 1.0}, description="resources that Ray reserves for an RPC worker"
    )
    version: str = Field("1", description="a new value replaces all leads, one after the other")
    drain_seconds: float = Field(600.0, ge=0, description="seconds for a replaced lead to finish its answers")

    def arguments(self, program: str) -> list[str]:
        return shlex.split(str(getattr(self, program)))

    def key(self) -> str | None:
        """Return the first key in the key file, which the fleet uses to call its own leads."""
        if self.key_file is None:
            return None
        lines = (line.strip() for line in self.key_file.read_text().splitlines())
        return next((line for line in lines if line and not line.startswith("#")), None)
