"""Use the package `ollama` with a lead that reads images: `show_with_ollama.py URL PICTURE`."""

import json
import sys

import ollama


def main() -> None:
    url, picture = sys.argv[1:]
    client = ollama.Client(host=url)
    (listed,) = client.list().models
    name, options = listed.model, {"num_predict": 8, "seed": 1}
    asked = [{"role": "user", "content": "What is this?", "images": [picture]}]
    found = (
        client.show(name).capabilities,
        client.chat(name, asked, options=options).prompt_eval_count,
        client.generate(name, "What is this?", images=[picture], options=options).prompt_eval_count,
    )
    sys.stdout.write("".join(json.dumps(each) + "\n" for each in found))


if __name__ == "__main__":
    main()
