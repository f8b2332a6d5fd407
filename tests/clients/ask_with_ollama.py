"""Use the packages `ollama` and `langchain-ollama` with a lead: `ask_with_ollama.py URL`."""

import json
import sys

import ollama
from langchain_ollama import ChatOllama

HELLO = [{"role": "user", "content": "Hello!"}]
OPTIONS = {"num_predict": 40, "seed": 1}
FORM = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30}}, "required": ["city"]}


def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"Sunny in {city}."


def say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def main() -> None:
    client = ollama.Client(host=sys.argv[1])
    (listed,) = client.list().models
    name = listed.model
    say(client.show(name).capabilities)
    say([each.model == name for each in client.ps().models])
    answer = client.chat(name, HELLO, options=OPTIONS)
    say((answer.done, answer.eval_count > 0, len(answer.message.content) > 0))
    streamed = list(client.chat(name, HELLO, options=OPTIONS, stream=True))
    say("".join(each.message.content for each in streamed) == answer.message.content)
    say(list(json.loads(client.chat(name, HELLO, format=FORM).message.content)))
    call = {"function": {"name": "get_weather", "arguments": {"city": "Rome"}}}
    turns = [
        *HELLO,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "get_weather", "content": get_weather("Rome")},
    ]
    say(client.chat(name, turns, tools=[get_weather], options=OPTIONS).done)
    say(len(client.generate(name, "The capital of France is", raw=True, options=OPTIONS).response) > 0)
    try:
        client.embed(name, "Hello")
    except ollama.ResponseError as error:
        say((error.status_code, error.error))
    model = ChatOllama(model=name, base_url=sys.argv[1], num_predict=40, seed=1, validate_model_on_init=True)
    say(len(model.invoke("Hello!").content) > 0)
    streamed = [chunk.usage_metadata for chunk in model.stream("Hello!")]
    say(sum(usage["output_tokens"] for usage in streamed if usage))
    say(model.with_structured_output(FORM).invoke("Where is the Louvre?").keys() == {"city"})


if __name__ == "__main__":
    main()
