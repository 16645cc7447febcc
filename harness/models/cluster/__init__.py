"""A simulated cluster: brokers that copy, clean and fail on a virtual clock, over a network that loses and reorders.

Not modelled: byte limits of fetches, except throttled ones; transactions that time out; full disks; controllers and
their elections; retries of a client that write a record twice.
"""
