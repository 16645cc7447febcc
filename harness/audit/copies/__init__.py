"""Audits of copies of log directories."""
