"""Use the `litellm` package with a lead: `ask_with_litellm.py URL`. Each call prints a line."""

import json
import sys

import litellm

ASK = {
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "api_key": "none",
    "max_tokens": 60,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 30}},
            "required": ["city"],
        },
    },
}


def say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def main() -> None:
    litellm.suppress_debug_info = True  # it goes to stdout
    url = sys.argv[1]
    openai = ASK | {"model": "openai/any", "api_base": f"{url}/v1"}
    say(litellm.completion(**openai).usage.completion_tokens)
    chunks = list(litellm.completion(**openai, stream=True, stream_options={"include_usage": True}))
    say(litellm.stream_chunk_builder(chunks).usage.completion_tokens)
    calls = litellm.completion(**openai, tools=[TOOL], tool_choice="required").choices[0].message.tool_calls
    say([call.function.name for call in calls])
    form = {"type": "json_schema", "json_schema": {"name": "call", "schema": TOOL["function"]["parameters"]}}
    document = litellm.completion(**openai, response_format=form).choices[0].message.content
    say(list(json.loads(document)))
    text = {**openai, "model": "text-completion-openai/any", "prompt": "The capital of France is"}
    text.pop("messages")
    say(len(litellm.text_completion(**text).choices[0].text) > 0)
    response = litellm.responses(
        model="openai/any", input="Hello", api_base=f"{url}/v1", api_key="none", max_output_tokens=20
    )
    say(len(response.output[0].content[0].text) > 0)
    message = litellm.completion(**ASK, model="anthropic/any", api_base=url)
    say(message.usage.completion_tokens)
    try:
        litellm.completion(**openai, temperature=-1)
    except litellm.BadRequestError as error:
        say("temperature" in str(error))


if __name__ == "__main__":
    main()
