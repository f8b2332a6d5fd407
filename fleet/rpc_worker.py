"""An actor that owns an RPC worker: layers of one lead's model on another machine."""

import ray

from fleet.child_process import ChildProcess, free_port
from fleet.settings import FleetSettings


class RpcWorker:
    """Ends with the lead's replica."""

    def __init__(self, settings: FleetSettings) -> None:
        is_local = settings.host != "node"
        host = settings.host if is_local else ray.util.get_node_ip_address()
        self._address = f"{host}:{free_port(host)}"
        arguments = [*settings.arguments("rpc_worker"), "--host", host, "--port", self._address.split(":")[1]]
        self._worker = ChildProcess("lead", "rpc-worker", *arguments, *(() if is_local else ("--insecure",)))

    def address(self) -> str:
        """host:port, for `lead --rpc`."""
        return self._address
