from bench.attack.places import operations
from lead.server.app import create_app

OPERATIONS = {str(operation): operation for operation in operations(create_app().openapi())}


def named(operation):
    return {place.name: place for place in OPERATIONS[operation].places}


def test_places_are_found_in_lists_and_members():
    places = named("POST /v1/chat/completions")
    assert {"", "messages[].content[].text", "logit_bias{}", "response_format.json_schema.schema"} <= set(
        places
    )


def test_a_place_knows_what_the_description_allows_there():
    assert {"text", "list"} <= named("POST /v1/chat/completions")["messages[].content"].kinds


def test_a_value_is_put_at_its_place_with_what_is_required_beside_it():
    body = named("POST /v1/chat/completions")["messages[].content[].text"].put(5)
    assert body["messages"][0]["content"][0]["text"] == 5
    assert {"role", "content"} <= set(body["messages"][0])
