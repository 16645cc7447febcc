"""Which replica is wrong about a key, where evidence decides.

`key_states` has what each replica serves, `coverage` which replicas must have received a record, and `blame` decides.
Findings are in `checkers.anomalies`; the sentences that a user reads are in `harness.audit`.
"""
