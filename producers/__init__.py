"""Roles that make work: the feeder admits prompts, rollout producers sample from the policy."""
