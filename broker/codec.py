"""Groups and entries as the server keeps them: text where a person would look, one raw field per tensor.

For: values ↔ fields of a stream entry, of a group's hash, of an archive. Not for: transport, or one tensor (`tensors`).

An entry is text only. A body is a hash that each stage adds to: the prompt's fields, the rollouts' fields, the scores'
fields; no field is written twice. What is nested lies in `body`, as MessagePack. `r0.reward` and `r0.part.NAME` are
there to be read by people; the tensors beside them are what is decoded. Never pickle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from numpy.typing import NDArray

from broker.errors import Poison
from broker.fields import SCHEMA, Fields, check_schema, kind_of, pack, real, text, to_bytes, unpack, whole, wholes
from broker.messages import Entry, Group, Kind, Prompt, Rollouts, Scores
from broker.soundness import check_id, check_prompt, check_rollouts, check_scores
from broker.streams import PROMPTS, ROLLOUTS
from broker.tensors import read_tensor, write_tensor

PROMPT_FIELDS: Final = frozenset(b"prompt size seed temperature max_actions answer task stop body".split())
"""Besides `prompt.actions`: what a body holds from admission to its end."""


def encode_entry(entry: Entry) -> Fields:
    """An entry's text fields; those that say nothing (no attempt, no reward yet, …) are left out."""
    fields = {
        b"group": to_bytes(entry.group),
        b"kind": entry.kind.encode(),
        b"task": to_bytes(entry.task),
        b"size": b"%d" % entry.size,
        b"floor": b"%d" % entry.floor,
        b"last_version": b"%d" % entry.last_version,
        b"schema": SCHEMA.encode(),
    }
    if entry.attempt:
        fields[b"attempt"] = b"%d" % entry.attempt
    if entry.alone:
        fields[b"alone"] = b"1"
    if entry.oldest_version != -1:
        fields[b"oldest_version"] = b"%d" % entry.oldest_version
    if entry.newest_version != -1:
        fields[b"newest_version"] = b"%d" % entry.newest_version
    if entry.reward is not None:
        fields[b"reward"] = repr(float(entry.reward)).encode()
    if entry.tokens:
        fields[b"tokens"] = b"%d" % entry.tokens
    if entry.bytes:
        fields[b"bytes"] = b"%d" % entry.bytes
    if entry.trace:
        fields[b"trace"] = to_bytes(entry.trace)
    return fields


def decode_entry(fields: Mapping[bytes, bytes]) -> Entry:
    """The entry of these fields. Raises Poison and nothing else: for another schema, an absent field, a number or an id
    that is none.
    """
    check_schema(fields)
    group, reward = text(fields, "group"), fields.get(b"reward")
    check_id(group)
    return Entry(
        group=group,
        kind=kind_of(fields),
        task=text(fields, "task", ""),
        size=whole(fields, "size"),
        floor=whole(fields, "floor"),
        last_version=whole(fields, "last_version"),
        attempt=whole(fields, "attempt", 0),
        alone=fields.get(b"alone") == b"1",
        oldest_version=whole(fields, "oldest_version", -1),
        newest_version=whole(fields, "newest_version", -1),
        reward=None if reward is None else real(fields, "reward"),
        tokens=whole(fields, "tokens", 0),
        bytes=whole(fields, "bytes", 0),
        trace=text(fields, "trace", ""),
    )


def encode_prompt(group: Group) -> Fields:
    """The fields a group enters with. Raises Poison when `meta` is not plain values, or the id no name."""
    check_id(group.id)
    prompt = group.prompt
    check_prompt(prompt.size, prompt.temperature, prompt.max_actions)
    fields = {
        b"prompt": to_bytes(prompt.text),
        b"size": b"%d" % prompt.size,
        b"seed": b"%d" % prompt.seed,
        b"temperature": repr(float(prompt.temperature)).encode(),
        b"max_actions": b"%d" % prompt.max_actions,
    }
    if prompt.answer:
        fields[b"answer"] = to_bytes(prompt.answer)
    if prompt.task:
        fields[b"task"] = to_bytes(prompt.task)
    if prompt.stop:
        fields[b"stop"] = " ".join(map(str, prompt.stop)).encode()
    if prompt.meta:
        fields[b"body"] = pack({"meta": dict(prompt.meta)})
    add_tensor(fields, "prompt.actions", prompt.actions)
    return fields


def encode_rollouts(rollouts: Rollouts) -> Fields:
    """The fields a rollout producer adds. Raises Poison when tensors do not fit one another."""
    check_rollouts(rollouts)
    fields: Fields = {}
    for index, (said, finish) in enumerate(zip(rollouts.texts, rollouts.finishes, strict=True)):
        fields[b"r%d.text" % index] = to_bytes(said)
        fields[b"r%d.finish" % index] = to_bytes(finish)
    add_tensor(fields, "actions", rollouts.actions)
    add_tensor(fields, "offsets", rollouts.offsets)
    add_tensor(fields, "logprobs", rollouts.logprobs)
    add_tensor(fields, "mask", rollouts.mask)
    add_tensor(fields, "spans", rollouts.spans)
    return fields


def encode_scores(scores: Scores) -> Fields:
    """The fields a reward consumer adds. Raises Poison for parts of another length, and for numbers that are none."""
    check_scores(scores.rewards, scores.parts)
    fields: Fields = {}
    add_tensor(fields, "rewards", scores.rewards)
    for index, reward in enumerate(scores.rewards.tolist()):
        fields[b"r%d.reward" % index] = b"%.6g" % reward
    for name, values in scores.parts.items():
        add_tensor(fields, f"part.{name}", values)
        label = to_bytes(name)
        for index, value in enumerate(values.tolist()):
            fields[b"r%d.part.%b" % (index, label)] = b"%.6g" % value
    return fields


def decode_group(group_id: str, kind: Kind, fields: Mapping[bytes, bytes]) -> Group:
    """The group of a body; parts no stage has written yet are None. Raises Poison and nothing else, naming what is
    wrong.
    """
    size = whole(fields, "size")
    return Group(
        id=group_id,
        kind=kind,
        prompt=decode_prompt(fields, size),
        rollouts=decode_rollouts(fields, size) if b"r0.text" in fields else None,
        scores=decode_scores(fields, size) if b"r0.reward" in fields else None,
    )


def decode_prompt(fields: Mapping[bytes, bytes], size: int) -> Prompt:
    temperature, max_actions = real(fields, "temperature"), whole(fields, "max_actions")
    check_prompt(size, temperature, max_actions)
    return Prompt(
        text=text(fields, "prompt"),
        actions=read_tensor(fields, "prompt.actions", ("i4", "f4"), axes=(1, 2)),
        size=size,
        seed=whole(fields, "seed"),
        temperature=temperature,
        max_actions=max_actions,
        stop=wholes(fields, "stop"),
        task=text(fields, "task", ""),
        answer=text(fields, "answer", ""),
        meta=decode_meta(fields.get(b"body")),
    )


def decode_meta(packed: bytes | None) -> dict[Any, Any]:
    meta: object = unpack(packed).get("meta") if packed else {}
    if not isinstance(meta, dict):
        raise Poison(f"field body holds a meta of type {type(meta).__name__}; the group is buried; write a map")
    return cast("dict[Any, Any]", meta)


def decode_rollouts(fields: Mapping[bytes, bytes], size: int) -> Rollouts:
    rollouts = Rollouts(
        texts=tuple(text(fields, f"r{index}.text") for index in range(size)),
        finishes=tuple(text(fields, f"r{index}.finish") for index in range(size)),
        actions=read_tensor(fields, "actions", ("i4", "f4"), axes=(1, 2)),
        offsets=read_tensor(fields, "offsets", ("i4",)),
        logprobs=read_tensor(fields, "logprobs", ("f4",)),
        mask=read_tensor(fields, "mask", ("u1",)),
        spans=read_tensor(fields, "spans", ("i4",), axes=(2,)),
    )
    check_rollouts(rollouts)
    return rollouts


def decode_scores(fields: Mapping[bytes, bytes], size: int) -> Scores:
    names = [part_name(field) for field in fields if field.startswith(b"part.") and field.endswith(b":f4")]
    scores = Scores(
        rewards=read_tensor(fields, "rewards", ("f4",)),
        parts={name: read_tensor(fields, f"part.{name}", ("f4",)) for name in names},
    )
    check_scores(scores.rewards, scores.parts, size)
    return scores


def part_name(field: bytes) -> str:
    try:
        return field[5:-3].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Poison(f"field {field[:80]!r} has no readable name; the group is buried; write it as UTF-8") from None


def encode_group(group: Group) -> bytes:
    """A whole group as one MessagePack map of the same fields, for archives and batch files."""
    fields = {b"group": to_bytes(group.id), b"kind": group.kind.encode(), b"schema": SCHEMA.encode()}
    fields |= encode_prompt(group)
    if group.rollouts is not None:
        fields |= encode_rollouts(group.rollouts)
    if group.scores is not None:
        fields |= encode_scores(group.scores)
    return pack(fields)


def decode_group_bytes(packed: bytes) -> Group:
    """What `encode_group` wrote. Raises Poison, and nothing else, when it is something else."""
    fields = unpack(packed)
    if {*map(type, fields), *map(type, fields.values())} != {bytes}:
        raise Poison(
            f"{len(packed)} bytes of MessagePack are no group's fields; they are not read; look who wrote them"
        )
    check_schema(fields)
    group = text(fields, "group")
    check_id(group)
    return decode_group(group, kind_of(fields), fields)


def encode_added(stream: str, group: Group) -> Fields:
    """What the stage that reads `stream` adds to the body. Raises Poison when the group came back without it."""
    if stream == PROMPTS and group.rollouts is not None:
        return encode_rollouts(group.rollouts)
    if stream == ROLLOUTS and group.scores is not None:
        return encode_scores(group.scores)
    raise Poison(f"{group.id} goes on from {stream} with nothing added; it is buried; the handler forgot its part")


def prompt_fields(fields: Mapping[bytes, bytes]) -> Fields:
    """What is left of a body when its group is generated again."""
    return {name: value for name, value in fields.items() if name in PROMPT_FIELDS or name.startswith(b"prompt.")}


def size_of(fields: Mapping[bytes, bytes]) -> int:
    """Bytes of names and values: what `Entry.bytes` adds up."""
    return sum(map(len, fields)) + sum(map(len, fields.values()))


def add_tensor(fields: Fields, name: str, array: NDArray[Any]) -> None:
    field, value = write_tensor(name, array)
    fields[field] = value
