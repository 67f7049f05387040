"""What a model writes cannot steer the terminal of whoever reads it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deploy.closing import one_line
from deploy.life_in_words import cut
from deploy.plain_text import plain


def test_escape_sequences_and_direction_marks_are_written_out() -> None:
    assert plain("\x1b[31mred\x9b\a \u202egnp.exe") == "\\x1b[31mred\\x9b\\x07 \\u202egnp.exe"
    assert plain("7 + 5 = 12\nÄ 中 😀") == "7 + 5 = 12\nÄ 中 😀"


@given(st.text())
def test_nothing_shown_of_a_group_can_steer_a_terminal(text: str) -> None:
    assert all(character.isprintable() or character == "\n" for character in cut(text))
    assert one_line(text).isprintable()
