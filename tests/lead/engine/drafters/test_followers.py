from lead.engine.drafters.followers import Followers


def test_what_followed_the_last_time_is_guessed():
    assert Followers().follow([1, 2, 1, 3, 1], 1, 1) == [3]


def test_nothing_is_guessed_after_a_new_token():
    assert Followers().follow([1, 2, 3], 3, 2) == []


def test_what_is_new_in_a_growing_text_is_learned():
    followers, text = Followers(), [1, 2]
    assert followers.follow(text, 2, 1) == []
    text += [7, 2]
    assert followers.follow(text, 2, 1) == [7]
