"""A simulated cluster: brokers that copy, clean and fail on a virtual clock, over a network that loses and reorders.

``settings``: what brokers and topics are given. ``network``: who reaches whom, and when. ``partition``: one partition's
replicas, who leads and who is in sync. ``cleaning``: when each broker's cleaner begins a pass. ``transactions``: the
coordinator. ``protection``: what replicas tell each other before something may go. ``cluster``: all of that together.
``files``: what a broker has on disk.

Not modelled: byte budgets of fetches but for throttled ones, transactions that time out, disks that fill, controllers
and their elections, a client's retries that write something twice.
"""
