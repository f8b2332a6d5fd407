#!/usr/bin/env bash
# A back by hand: the lead writes the same text twice, and this script drafts the second from the first.
set -euo pipefail
lead=${1:-http://127.0.0.1:5555}
json='Content-Type: application/json'
speculation() { curl -sS "$lead/v1/speculation$1" -H "Authorization: Bearer ${BACK_KEY:-}" -H "$json" "${@:2}"; }
write() {
	curl -sS "$lead/completion" -H "Authorization: Bearer ${API_KEY:-}" -H "$json" \
		-d '{"prompt": "Once upon a time", "n_predict": 100, "temperature": 0, "ignore_eos": true, "return_tokens": true}'
}

# 1. The text: n_prompt tokens of the prompt, then these.
first=$(write)

# 2. Say hello with the lead's own vocabulary: we run no model that has one.
hello=$(speculation "" | jq -c '{type: "hello", protocol: 2, name: "by-hand", vocabulary: .lead.vocabulary, n_ctx: 0, n_sequences: 1}')
welcome=$(speculation "" -d "{\"messages\": [$hello]}" | jq -c '.messages[0]')
back=$(jq -er .back <<<"$welcome") || { echo "$welcome"; exit 1; }  # "refused", with the reason

# 3. Have the lead write the text again. Follow it (open, extend, extend, …, close), and draft once it is open.
write >/dev/null &
news='{"messages": []}'
until jq -e 'any(.messages[]; .type == "close")' <<<"$news" >/dev/null; do
	news=$(speculation "?wait=30" -d "{\"back\": \"$back\"}")
	jq -c '.messages[] | del(.sampling)' <<<"$news"
	draft=$(jq -c --argjson first "$first" '.messages[] | select(.type == "open") | (.tokens | length) as $base |
		($base - $first.tokens_evaluated) as $n | {type: "draft", sequence, base: $base, tokens: $first.tokens[$n : $n + 64]}' <<<"$news")
	[ -z "$draft" ] || speculation "" -d "{\"back\": \"$back\", \"messages\": [$draft]}" >/dev/null
done
wait

# 4. The result.
speculation "" | jq -c '.backs[] | select(.name == "by-hand")'
