"""Policy adapters by name."""
