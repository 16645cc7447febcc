"""A simulated cluster: brokers that copy, clean and fail on a virtual clock, over a network that loses and reorders.

``settings``: what brokers and topics are given. ``network``: who reaches whom, and when. ``cluster``: what befalls
brokers, who leads, who has replicas. ``partition``, ``copying``: one partition, and how followers copy it.
``cleaning``, ``cleaners``: when a pass begins, and by whom; ``cloud``: the same of one shared copy. ``transactions``:
the coordinator. ``protection``: what replicas tell each other before something may go. ``files``: what a broker has on
disk.

Not modelled: byte budgets of fetches but for throttled ones, transactions that time out, disks that fill, controllers
and their elections, a client's retries that write something twice.
"""
