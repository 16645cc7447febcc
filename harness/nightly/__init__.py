"""`harness nightly`: a matrix of runs, and whether every cell of the matrix is as expected.

matrix -> plan of outages -> a ledger of the results -> cells -> summary, as JSON, Markdown and JUnit XML.
Each run of a night is a `harness run` of its own.
"""
