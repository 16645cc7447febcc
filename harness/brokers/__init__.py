"""What brokers write and answer, and how both are read.

Segments and side files, the wire protocol, copies of disks, and the storage that these lie on. How brokers are
started is in `harness.runtimes`; what is wrong with their content is for `checkers`.
"""
