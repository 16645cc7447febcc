"""Where a cluster's brokers live. A runtime is one class with the verbs of `harness.runtimes.base.Runtime`."""
