"""`harness explore`: whole state spaces of models of compaction, judged by the model's own state."""
