URL = "/apply-template"


async def test_the_prompt_is_what_the_chat_would_continue(lead, client):
    lead.will_say("x")
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    prompt = (await client.post(URL, json=body)).json()["prompt"]
    assert prompt.endswith("<|im_start|>assistant\n")
    await client.post("/v1/chat/completions", json=body)
    assert lead.prompt() == prompt


async def test_the_answer_need_not_be_begun(client):
    body = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": False}
    assert "assistant" not in (await client.post(URL, json=body)).json()["prompt"]


async def test_messages_are_needed(client):
    response = await client.post(URL, json={"messages": []})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")
