"""What a command takes from its host, and gives back: work directories, processes, ports, networks, disks, Java.

Everything here has an owner that ends it, and can be found again when that owner was killed.
What runs in it is for `harness.runtimes`.
"""
