"""Roles that take work: reward consumers score groups, the trainer consumer turns them into weight versions."""
