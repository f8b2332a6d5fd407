#!/usr/bin/env bash
# A back by hand. It has the lead write the same text twice, and the second time drafts what it received the first time.
set -euo pipefail
lead=${1:-http://127.0.0.1:5555}
json='Content-Type: application/json'
speculation() { curl -sS "$lead/v1/speculation$1" -H "Authorization: Bearer ${BACK_KEY:-}" -H "$json" "${@:2}"; }
write() {
	curl -sS "$lead/v1/completions" -H "Authorization: Bearer ${API_KEY:-}" -H "$json" \
		-d '{"prompt": "Once upon a time", "max_tokens": 100, "temperature": 0, "ignore_eos": true}' | jq -c .usage
}

# 1. Say hello with the lead's own vocabulary: we run no model that has one.
hello=$(speculation "" | jq -c '{type: "hello", protocol: 2, name: "by-hand", vocabulary: .lead.vocabulary, n_ctx: 0, n_sequences: 1}')
welcome=$(speculation "" -d "{\"messages\": [$hello]}" | jq -c '.messages[0]')
back=$(jq -er .back <<<"$welcome") || { echo "$welcome"; exit 1; }  # "refused", with the reason

# 2. Follow a text: open, extend, extend, …, close.
write &
text='[]' news='{"messages": []}'
until jq -e 'any(.messages[]; .type == "close")' <<<"$news" >/dev/null; do
	news=$(speculation "?wait=30" -d "{\"back\": \"$back\"}")
	jq -c '.messages[] | del(.sampling)' <<<"$news"
	text=$(jq -c --argjson text "$text" '$text + [.messages[].tokens // [] | .[]]' <<<"$news")
done
wait

# 3. Have the lead write it again, and draft.
write &
until jq -e 'any(.messages[]; .type == "open")' <<<"$news" >/dev/null; do
	news=$(speculation "?wait=30" -d "{\"back\": \"$back\"}")
done
draft=$(jq -c --argjson text "$text" '.messages[] | select(.type == "open") | (.tokens | length) as $base |
	{type: "draft", sequence, base: $base, tokens: $text[$base : $base + 64]}' <<<"$news")
speculation "" -d "{\"back\": \"$back\", \"messages\": [$draft]}" >/dev/null
wait

# 4. The result.
speculation "" | jq -c '.backs[] | select(.name == "by-hand")'
