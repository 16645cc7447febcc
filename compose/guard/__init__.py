"""How to run `harness guard` for good: alert rules, a systemd unit, a compose service."""
