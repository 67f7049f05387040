"""What decides where processes run, and the one place that starts, watches, drains and fences them."""
