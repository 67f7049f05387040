"""Text from a model or a stranger, made harmless for a terminal.

For: whatever shows prompts, answers or reasons to a person. Not for: JSON and files, which keep every character.
"""

from __future__ import annotations


def plain(text: str) -> str:
    """`text` with each character that could steer a terminal (escape sequences, direction marks) written out."""
    return "".join(map(written, text))


def written(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
