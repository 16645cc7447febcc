"""`harness nightly`: a matrix of runs and soaks, each in a separate process, compared with the expected verdicts.

matrix -> plan of runs -> a ledger of the attempts -> cells -> summary, as JSON, Markdown and JUnit XML.
"""
