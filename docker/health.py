"""Whether the lead in this container is ready: the image's health check.

It knows the lead by the variables of its environment. It asks itself and shows no key, so it trusts any
certificate. Nothing but the standard library is imported: it runs every few seconds on the model's machine.
"""

import os
import ssl
import urllib.request
from collections.abc import Mapping

_SECONDS = 2.0


def url(environment: Mapping[str, str]) -> str:
    """Where the lead that finds `environment` is asked how it is."""

    def given(name: str) -> str | None:
        return environment.get(f"LEAD_{name}") or environment.get(f"LLAMA_ARG_{name}")

    scheme = "https" if given("SSL_CERT_FILE") else "http"
    return f"{scheme}://127.0.0.1:{given('PORT') or 5555}/health"


def ask(where: str) -> None:
    """Raises OSError unless the answer is 200."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    no_proxy = urllib.request.ProxyHandler({})
    opener = urllib.request.build_opener(no_proxy, urllib.request.HTTPSHandler(context=context))
    opener.open(where, timeout=_SECONDS).close()


if __name__ == "__main__":
    ask(url(os.environ))
