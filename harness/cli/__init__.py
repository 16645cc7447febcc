"""The command line: one file per command, and the options that several commands share."""
