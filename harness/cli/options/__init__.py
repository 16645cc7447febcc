"""Options and types of values that several commands share; each command is a module of `harness.cli`."""
