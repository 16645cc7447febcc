"""Which replica is wrong about a key, as far as evidence decides it.

What each replica serves, which replicas must have had a record, and the decision. Findings are in
`checkers.anomalies`; the sentences that a user reads are in `harness.audit`.
"""
