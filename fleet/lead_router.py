"""Chooses a replica for a request: one whose cache has the prompt's beginning, unless it is too busy.

Ray Serve sends no lead more requests than it has slots; other requests wait.
"""

from collections import Counter
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from fleet.messages import ForwardedRequest
from fleet.prefixes import SentPrefixes, ranks


class LeadRouter(RequestRouter):  # type: ignore[misc]  # ray has no types where it is not installed
    """Chooses replicas for one deployment handle; each ingress has one."""

    def initialize_state(self, **_settings: Any) -> None:
        self._prefixes = SentPrefixes()
        self._running: Counter[str] = Counter()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return the replicas in groups, best group first.

        Ray Serve takes the least busy replica of a group, or continues with the next group.
        """
        candidates = {each.replica_id.unique_id: each for each in candidate_replicas}
        request = _request_of(pending_request)
        blocks = request.blocks if request else ()
        failed = request.failed if request else frozenset()
        left = [name for name in candidates if name not in failed] or list(candidates)
        running = {name: max(self._running[name], _told(candidates[name])) for name in left}
        depths = {name: self._prefixes.depth(blocks, name) for name in left}
        return [[candidates[name] for name in group] for group in ranks(depths, running)]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        del result
        self._running[replica_id.unique_id] += 1
        if request := _request_of(pending_request):
            self._prefixes.note(request.blocks, replica_id.unique_id)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        del internal_request_id
        self._running[replica_id.unique_id] -= 1
        if self._running[replica_id.unique_id] <= 0:
            del self._running[replica_id.unique_id]


def _told(replica: RunningReplica) -> int:
    """Return the load that a replica's lead reported a moment ago: other ingresses send requests, too."""
    return int((replica.routing_stats or {}).get("running", 0))


def _request_of(pending: PendingRequest | None) -> ForwardedRequest | None:
    first = pending.args[0] if pending and pending.args else None
    return first if isinstance(first, ForwardedRequest) else None
