"""A back in plain Python: it drafts the tokens that followed the last two tokens where they occurred before.

BACK_KEY=… python tiny_back.py http://127.0.0.1:5555
"""

import json
import os
import sys
import urllib.request

URL = f"{sys.argv[1]}/v1/speculation"
ASK = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # no proxy may see the key
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('BACK_KEY', '')}"}


def call(method: str, query: str = "", body: object = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    with ASK(urllib.request.Request(URL + query, data, HEADERS, method=method)) as answer:
        return json.load(answer)


texts: dict[str, list[int]] = {}  # by sequence: the tokens that are final
seen: dict[tuple[int, ...], int] = {}  # two tokens: the token that followed them last
n_ahead = 16
vocabulary = call("GET")["lead"]["vocabulary"]  # a back with a model sends its own
hello = {"type": "hello", "protocol": 2, "name": "tiny", "n_ctx": 0, "n_sequences": 64}
reply = call("POST", body={"messages": [hello | {"vocabulary": vocabulary}]})
back = reply["messages"][0].get("back")
while True:
    drafts = {}
    for message in reply["messages"]:
        match message:
            case {"type": "refused", "reason": reason}:
                sys.exit(reason)
            case {"type": "tune"}:
                n_ahead = message["n_ahead"]
            case {"type": "close", "sequence": sequence}:
                texts.pop(sequence, None)
            case {"type": "open" | "extend", "sequence": sequence, "tokens": tokens}:
                text = texts.setdefault(sequence, [])
                text[message.get("start", 0) :] = tokens
                for i in range(max(2, len(text) - len(tokens)), len(text)):
                    seen[text[i - 2], text[i - 1]] = text[i]
                line = text[-2:]
                while len(line) < 2 + n_ahead and (token := seen.get(tuple(line[-2:]))) is not None:
                    line.append(token)
                drafts[sequence] = {"base": len(text), "tokens": line[2:]}
    messages = [
        {"type": "draft", "sequence": each} | draft for each, draft in drafts.items() if draft["tokens"]
    ]
    reply = call("POST", "?wait=30", {"back": back, "heard": reply["number"], "messages": messages})
