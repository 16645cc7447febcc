"""Decide from evidence which replica is wrong about a key; the sentences for users are in `harness.audit`."""
