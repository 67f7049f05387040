"""Coverage-guided search for bytes that the codec does not answer with a group, an entry or Poison.

    python -m tests.unit.codec_fuzzer -max_total_time=60

For: the nightly test, and anybody with an hour to spare. Not for: damaged but near-sound values (`test_hostile_bytes`).
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import atheris  # pyright: ignore[reportMissingImports]

fuzzer: Any = atheris

with fuzzer.instrument_imports(include=["broker"]):
    from broker.codec import decode_entry, decode_group, decode_group_bytes, encode_entry, encode_group
    from broker.errors import Poison
    from broker.fields import pack, unpack
    from broker.messages import Entry
    from tests.unit.test_codec import body, example


ENTRY = encode_entry(Entry(group="a/0/1", kind="train", task="a", size=2, floor=0, last_version=1))
BODY = body(example())


def one_input(data: bytes) -> None:
    """The first byte says which reader gets the rest, the second which field."""
    if len(data) < 2:
        return
    kind, at, rest = data[0] % 3, data[1], data[2:]
    with contextlib.suppress(Poison):
        if kind == 0:
            group = decode_group_bytes(rest)
            decode_group_bytes(encode_group(group))
        elif kind == 1:
            decode_group("a/0/1", "train", {**BODY, sorted(BODY)[at % len(BODY)]: rest})
        else:
            decode_entry({**ENTRY, sorted(ENTRY)[at % len(ENTRY)]: rest})


def main() -> None:
    fuzzer.Setup(sys.argv, one_input)
    fuzzer.Fuzz()


if __name__ == "__main__":
    assert unpack(pack({})) == {}
    main()
