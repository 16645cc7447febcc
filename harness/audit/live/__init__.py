"""Audits of a running cluster."""
