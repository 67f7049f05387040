"""Placements by name; a dotted path `module:function` is accepted wherever a name is."""

from __future__ import annotations

from broker.registry import Named
from scheduler.placements.base import Placement
from scheduler.settings import SchedulerSection

PLACEMENTS = {
    "pressure": "scheduler.placements.pressure:make",
    "proportional": "scheduler.placements.proportional:make",
    "fixed": "scheduler.placements.fixed:make",
}


def create(settings: SchedulerSection) -> Placement:
    """The placement of these settings. Raises Misconfigured for a name that leads to none."""
    name = settings.placement
    return Named(f'[scheduler] placement = "{name}"', name).made(PLACEMENTS, Placement, settings)
