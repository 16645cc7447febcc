"""Resources of a host that a command uses and releases: work directories, processes, ports, networks, disks, Java.

Each resource has an owner that releases it, and is identified by its run if the owner was killed.
"""
