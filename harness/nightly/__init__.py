"""A matrix of runs, night after night, and whether every cell of it is as expected.

matrix -> plan of outages -> a ledger of what each of them said -> cells -> summary, as JSON, Markdown and JUnit XML.
"""
