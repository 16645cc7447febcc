"""A simulated cluster: brokers that copy, clean and fail on a virtual clock, over a network that loses and reorders.

``settings``: settings of brokers and topics. ``broker``: brokers, links and delays. ``cluster``: starts, failures,
leaders and assignments. ``partition``: one partition, and how followers copy it. ``cleaners``: each broker's cleaner,
and coordinated compaction; ``cloud``: compaction of one shared copy. ``transactions``: the transaction coordinator.
``files``: a broker's files on disk.

Not modelled: byte limits of fetches, except throttled ones; transactions that time out; full disks; controllers and
their elections; retries of a client that write a record twice.
"""
