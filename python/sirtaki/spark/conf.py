"""Spark's settings for elastic jobs, as pairs for `SparkConf.set`.

Spark's `spark.excludeOnFailure` is the blacklist in Horovod's names.
"""

SPARK_CONF_ALWAYS_RESTART_FAILED_TASK = ("spark.task.maxFailures", "2147483647")
SPARK_CONF_BLACKLIST_DISABLED = ("spark.excludeOnFailure.enabled", "false")
SPARK_CONF_BLACKLIST_ENABLED = ("spark.excludeOnFailure.enabled", "true")
