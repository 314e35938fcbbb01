"""Elastic jobs on Spark: agents in tasks that Spark may start, lose and restart."""
