"""Parse the record batches of log segments: with a compiled reader (`blocks`) and a plain reader (`batches`)."""
