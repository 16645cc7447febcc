"""`harness guard`: pauses compaction of a topic, from outside, while an assigned replica is not caught up."""
