"""Spark, brought up fast enough for data as small as a run folder's."""
