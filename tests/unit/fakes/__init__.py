"""The test doubles: a module for each seam of the product, that is a protocol, a base class or a program outside.

A double here satisfies the type that it stands in for, works without threads or a clock, and records its calls.
Not here: literal logs (`literal`, `copied`), simulated clusters (`simulated`), callbacks that one test alone scripts.
"""
