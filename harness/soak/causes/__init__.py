"""Causes that give a finding of a round a name."""
