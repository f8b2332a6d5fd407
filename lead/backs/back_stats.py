"""What happened to the drafts of a back."""

from dataclasses import dataclass


@dataclass(slots=True)
class BackStats:
    """Used tokens were verified in a step; the other tokens were never needed."""

    n_drafts: int = 0
    n_draft_tokens: int = 0
    n_used_tokens: int = 0
    n_accepted_tokens: int = 0
    n_stale_drafts: int = 0
    n_invalid_drafts: int = 0
    n_excess_drafts: int = 0

    def as_dict(self) -> dict[str, int]:
        """By name, as `GET /v1/speculation` shows them."""
        return {name: getattr(self, name) for name in self.__slots__}
