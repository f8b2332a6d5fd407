"""The output of `lead invite --app`: how to configure common programs for a lead, its key and its CA."""

import hashlib
import json
import shlex
import ssl
from string import Template

CA_FILE = "lead-ca.crt"
_LINES = Template("""\
    base URL  $base
    API key   $key
    model     $model
    CA file   $file. Fetch it once on the program's machine:

    curl -k $url/ca.crt -o $file
    openssl x509 -in $file -noout -fingerprint -sha256

The output has to show this fingerprint:
    $fingerprint
$others
curl:
    curl --cacert $file $base/models -H "Authorization: Bearer $key"

Python (OpenAI's SDK, Open WebUI, llm):
    export SSL_CERT_FILE=$$PWD/$file

OpenAI's SDK:
    export OPENAI_BASE_URL=$base OPENAI_API_KEY=$key

Open WebUI:
    OPENAI_API_BASE_URL=$base OPENAI_API_KEY=$key ENABLE_OLLAMA_API=false open-webui serve

llm:
    llm keys set lead --value $key
    printf '%s\\n' $llm >> "$$(dirname "$$(llm logs path)")/extra-openai-models.yaml"
    llm -m $word "Why is the sky blue?"

Claude Code:
    export NODE_EXTRA_CA_CERTS=$$PWD/$file ANTHROPIC_BASE_URL=$url ANTHROPIC_AUTH_TOKEN=$key
    export ANTHROPIC_MODEL=$word ANTHROPIC_SMALL_FAST_MODEL=$word
    claude

VS Code with Continue, in ~/.continue/config.yaml under `models:`:
    - {name: $quoted, provider: openai, model: $quoted, apiBase: "$base", apiKey: $key,
       requestOptions: {caBundlePath: /PATH/TO/$file}}""")


def app_lines(addresses: tuple[str, ...], key: str, model: str, certificate: str) -> str:
    """Return the lines that configure other programs for this lead.

    addresses: host:port, the likeliest first. key: the program's key. model: the model's name. certificate:
    the certificate of the CA in PEM.
    """
    first, *others = addresses
    more = f"\nOther addresses of this lead: {', '.join(others)}\n" if others else ""
    url = f"https://{first}"
    entry = {"model_id": model, "model_name": model, "api_base": f"{url}/v1", "api_key_name": "lead"}
    return _LINES.substitute(
        base=f"{url}/v1",
        url=url,
        key=key,
        model=model,
        word=shlex.quote(model),
        quoted=json.dumps(model),
        llm=shlex.quote(f"- {json.dumps(entry)}"),
        file=CA_FILE,
        fingerprint=shown_fingerprint(certificate),
        others=more,
    )


def shown_fingerprint(certificate: str) -> str:
    """Return the SHA-256 of a certificate (PEM) as openssl and the dialogs of operating systems show it;
    raises ValueError.
    """
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).digest().hex(":").upper()
