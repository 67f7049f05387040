"""How close the completion's length is to a target, in characters: 1 at the target, 0 for nothing and from twice it
on."""

from __future__ import annotations


class Length:
    def __init__(self, *, target: int = 100) -> None:
        if target < 1:
            raise ValueError(f"target = {target}; it must be 1 character or more")
        self.target = target

    def __call__(self, *, prompt: str, completion: str, answer: str, meta: object) -> float:
        return max(0.0, 1.0 - abs(len(completion) - self.target) / self.target)
