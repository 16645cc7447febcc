"""The harness: from a plan through a run and its evidence to a verdict and a report.

Data goes one way, and so do imports (`[tool.importlinter]` in pyproject.toml):

    plan -> run -> run_folder -> judge (with the top-level package `checkers`) -> report

* ``plan``          scenarios, timers, placement, schedules: data only
* ``run``           one run, from options to its evidence; `harness check` too
* ``cluster``       the cluster under test while it runs: its state, observations, snapshots
* ``run_folder``    the files of a run
* ``judge``         Spark, the checkers' rows, `verdict.json`
* ``report``        HTML pages
* ``brokers``       what brokers write and answer: segments, wire protocol, copies of disks, storage
* ``targets``       versions of Kafka and Redpanda, their jars, images and settings
* ``systems``       what differs between Kafka, Redpanda and the simulated clusters
* ``runtimes``      where brokers run: processes, containers, other hosts, simulation
* ``clients``       producers and readers
* ``spark``         a Spark session for small data
* ``host``          what a command takes from its host and gives back
* ``command_line``  what all commands share
* ``audit``, ``nightly``, ``explore``, ``conformance``: the other commands, one folder each

Beside the folders: ``cli`` (the commands), ``doctor``, and what every folder may use: ``errors``, ``escape``,
``suggest``, ``terminal``.
"""

DISTRIBUTION = "compaction-harness"
"""The name under which the project is installed."""
