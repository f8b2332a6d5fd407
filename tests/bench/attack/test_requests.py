from bench.attack.places import operations
from bench.attack.requests import Attacks, Delivery
from lead.server.app import create_app

ATTACKS = Attacks(operations(create_app().openapi()), seed=1)
FEW = [ATTACKS.number(number) for number in range(2000)]


def test_an_attack_is_the_same_for_a_seed_and_a_number():
    again = Attacks(operations(create_app().openapi()), seed=1)
    assert [again.number(number) for number in range(50)] == FEW[:50]


def test_another_seed_makes_others():
    assert Attacks(operations(create_app().openapi()), seed=2).number(0) != FEW[0]


def test_every_operation_and_delivery_occurs():
    described_paths = set(create_app().openapi()["paths"])
    assert described_paths <= {attack.path for attack in FEW}
    assert {attack.delivery for attack in FEW} == set(Delivery)


def test_large_attacks_reach_every_list_of_every_route():
    large = [str(attack) for attack in ATTACKS.large(1000)]
    for place in ("POST /v1/responses input: ", "POST /v1/messages system: ", "POST /completion prompt: "):
        assert any(attack.startswith(place) for attack in large), place
