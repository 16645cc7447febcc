"""Files for a permanent `harness guard`: alert rules, a systemd unit, a compose service."""
