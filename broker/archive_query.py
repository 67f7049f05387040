"""What is looked for among closed groups, as SQL conditions with their values.

For: `archive_index`. Not for: running them. What a caller says goes into values, never into the statement.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from broker.errors import Misconfigured

Bounds = tuple[float | None, float | None]
"""Smallest and largest, both included; None is no bound."""
Sort = Literal["at", "reward", "length", "newest", "trained", "attempt", "id"]
SORTS: Final = get_args(Sort)


def conditions(
    text: str, reward: Bounds, length: Bounds, version: Bounds, trained: Bounds, fate: str | None, kind: str | None
) -> tuple[str, list[object]]:
    """The condition and its values."""
    where, values = ["latest = 1"], list[object]()
    for column, (least, most) in {"reward": reward, "length": length, "newest": version, "trained": trained}.items():
        for sign, bound in ((">=", least), ("<=", most)):
            if bound is not None:
                where.append(f"{column} {sign} ?")
                values.append(bound)
    if fate is not None:
        where.append("(fate = ? OR (fate = 'retired' AND reason = ?))")
        values += [fate, fate]
    if kind is not None:
        where.append("kind = ?")
        values.append(kind)
    if text:
        where.append("(id LIKE ? ESCAPE '\\' OR place IN (SELECT place FROM said WHERE text LIKE ? ESCAPE '\\'))")
        values += [like(text)] * 2
    return " AND ".join(where), values


def like(text: str) -> str:
    r"""The pattern that finds `text` anywhere.

    >>> like('50%')
    '%50\\%%'
    """
    for sign in "\\%_":
        text = text.replace(sign, f"\\{sign}")
    return f"%{text}%"


def order(sort: str, ascending: bool) -> str:
    """The order of rows; a column's name is taken from a list, not from the caller. Raises Misconfigured."""
    if sort not in SORTS:
        raise Misconfigured(f"sort {sort!r}: there is no such order; nothing was read; known: {', '.join(SORTS)}")
    way = "ASC" if ascending else "DESC"
    return f"{sort} {way} NULLS LAST, place {way}"
