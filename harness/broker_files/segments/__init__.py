"""Record batches and the files next to them, parsed without a broker.

Log segments, `.txnindex`, producer snapshots, checkpoints, and the cluster metadata log. There is a compiled reader
(`blocks`) and a plain one (`batches`); `checkers` interprets their content.
"""
