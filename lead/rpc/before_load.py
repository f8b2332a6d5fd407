"""With `--rpc` the engine waits for its workers before it loads the model."""

from lead.engine.heartbeat import Computing, Heartbeat
from lead.engine.load import Load
from lead.rpc.rpc_workers import wait_for_workers
from shared.rpc import rpc_backend


def before_load(load: Load, heartbeat: Heartbeat | None) -> Load:
    """Raises ModelLoadError, WorkerAwayError."""
    if not load.rpc:
        return load
    wait_for_workers(load.rpc, load.rpc_timeout)
    if heartbeat:
        heartbeat.watch(Computing().has_proceeded)  # a worker that hangs lets llama.cpp wait for ever
    rpc_backend.add_workers(load.rpc)
    return load
