"""Use the previous major version of the `openai` package with a lead: `previous_openai.py URL`.

Each call prints a line. The program has its own process because two major versions cannot share a process.
"""

import json
import sys

import openai

ASK = {"model": "any", "messages": [{"role": "user", "content": "Hello"}]}
TOOL = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}


def say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def main() -> None:
    say(openai.__version__.split(".")[0])
    with openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0) as client:
        message = client.chat.completions.create(**ASK, tools=[TOOL]).choices[0].message
        say(message.tool_calls[0].function.arguments)
        with client.chat.completions.stream(**ASK, tools=[TOOL]) as stream:
            say(stream.get_final_completion().choices[0].message.tool_calls[0].function.arguments)
        say(client.chat.completions.create(**ASK).choices[0].message.content)
        chunks = client.chat.completions.create(**ASK, stream=True)
        say("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
        say(client.completions.create(model="any", prompt="one").choices[0].text)
        say(client.responses.create(model="any", input="Hello").output_text)
        try:
            client.chat.completions.create(**ASK, temperature=-1)
        except openai.BadRequestError as error:
            say(error.param)


if __name__ == "__main__":
    main()
