"""``harness audit key``: what each replica holds for one key, why it is served, and when cleaning may remove it."""
