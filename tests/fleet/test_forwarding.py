"""What is passed on between a client and a lead."""

from fleet.forwarding import passed_on


def test_headers_for_the_next_hop_are_not_passed_on():
    headers = [
        (b"Authorization", b"Bearer x"),
        (b"TE", b"a"),
        (b"Content-Length", b"1"),
        (b"x-request-id", b"7"),
    ]
    assert passed_on(headers) == [headers[0], headers[3]]


def test_a_lead_learns_which_host_name_the_client_used():
    """It refuses those of others' web pages."""
    assert passed_on([(b"Host", b"page.example")]) == [(b"Host", b"page.example")]


def test_white_space_at_the_ends_of_a_value_is_not_passed_on():
    """It cannot be sent: each lead in turn would seem to be gone."""
    assert passed_on([(b"x-mine", b"a b \t")]) == [(b"x-mine", b"a b")]
