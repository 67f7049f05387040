"""Text from a model or a stranger, made harmless for a terminal.

For: whatever shows prompts, answers or reasons to a person. Not for: JSON and files, which keep every character.
"""

from __future__ import annotations


def plain(text: str) -> str:
    """`text` with each character that could steer a terminal (escape sequences, direction marks) written out."""
    return "".join(map(written, text))


def shortened(text: str, most: int = 300) -> str:
    """Begin and end of a text that is longer: a reason may carry a whole completion."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def written(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
