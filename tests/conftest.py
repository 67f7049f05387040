"""What holds for all tests: random ones are not timed, since cores are shared, and say how to repeat a failure."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("shared cores", deadline=None, print_blob=True)
settings.load_profile("shared cores")
