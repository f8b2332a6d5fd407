"""What is said between `remote_grammar` and `grammar_server`.

A message consists of operations, int32 numbers each: (operation, place, n, n arguments). Only the last one,
ALLOWS or ALLOWED, is answered: with one byte of `AnswerKind`, then the answer or an error's text.
"""

import enum


class Operation(enum.IntEnum):
    """On a place in a text, which has a number."""

    ALLOWS = 1  # tokens; answered with a byte for each: 1 if it may come next
    ALLOWED = 2  # answered with the int32 ids of all tokens that may come next
    ACCEPT = 3  # tokens that follow
    ROLLBACK = 4  # how many of them to take back
    COPY = 5  # the number of the new place
    DROP = 6  # it is not needed any more


class AnswerKind:
    """The first byte of an answer."""

    ANSWER = b"\x00"
    ERROR = b"\x01"
