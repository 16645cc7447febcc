"""Decide from evidence which replica is wrong about a key.

`key_states` returns the state that each replica serves, `coverage` proves which replicas received a record, and `blame`
combines both. Findings are in `checkers.anomalies`, and the sentences for users in `harness.audit`.
"""
