"""Records of the compacted topics that brokers and their tools keep: their keys and values, and what they are about.

`decode` reads them by their topic's name; `phrases` has the words. Whoever reads a topic's records is not here, and
neither is what a coordinator makes of them.
"""
