"""A run's measures in words: reward, accuracy, staleness, speeds.

For: every place that shows a snapshot to a person. Not for: the arithmetic (`snapshot`).
"""

from __future__ import annotations

from deploy.snapshot import Snapshot


def measures(snapshot: Snapshot) -> list[str]:
    """Reward, accuracy, staleness and speeds, as far as known."""
    found: list[str] = []
    if snapshot.reward is not None:
        found.append(f"reward {snapshot.reward:.3f}")
    if snapshot.accuracy is not None and snapshot.accuracy_start is not None:
        found.append(f"accuracy {snapshot.accuracy_start:.3f} → {snapshot.accuracy:.3f}")
    if snapshot.staleness_mean is not None:
        found.append(
            f"staleness {snapshot.staleness_mean:.2f}, most {snapshot.staleness_max} (≤ {snapshot.goal.staleness})"
        )
    if snapshot.tokens_per_s is not None:
        found.append(f"{snapshot.tokens_per_s:,.0f} tokens/s")
    if snapshot.completions_per_s is not None:
        found.append(f"{snapshot.completions_per_s:,.0f} completions/s")
    return found


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
