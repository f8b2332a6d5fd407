"""Requests to a lead that has keys."""

from typing import Any

import httpx

from tests.real.client import TIMEOUT_S, Reply, chat

PORT = 5555
CLIENT_KEY, BACK_KEY = "the-clients-key", "the-backs-key"


def ask(url: str, **fields: Any) -> Reply:
    """A whole answer."""
    body = _request("POST", f"{url}/v1/chat/completions", json=chat(**fields))
    reply = Reply(text=body["choices"][0]["message"]["content"])
    reply.take_usage(body["usage"])
    return reply


def accepted(url: str) -> dict[str, int]:
    """Accepted tokens of each connected back."""
    backs = _request("GET", f"{url}/v1/speculation")["backs"]
    return {back["name"]: back["n_accepted_tokens"] for back in backs}


def _request(method: str, url: str, **arguments: Any) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {CLIENT_KEY}"}
    response = httpx.request(method, url, headers=headers, trust_env=False, timeout=TIMEOUT_S, **arguments)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body
