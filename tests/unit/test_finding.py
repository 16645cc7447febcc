"""Sentences of findings."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from checkers.finding import sentence


def test_a_sentence_has_the_values_of_columns_and_those_that_are_given(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(5, None, "wrong")], "offset long, key string, name string")
    written = sentence("100 % of {offset} and {key}: {name}, {offset}", name=f.upper(f.lit("given")))
    assert rows.select(written).first() == ("100 % of 5 and null: GIVEN, 5",)
