"""What the roles share: messages, the broker's verbs, weight versions, errors, telemetry. Imports no role."""
