"""What a worker sets for the jobs of its driver."""

from __future__ import annotations

from pyspark.sql import SparkSession

from eventproc.spark.job_groups import PARTITIONS, use_every_core


def test_shuffles_of_a_worker_have_as_many_parts_as_its_driver_has_cores(spark: SparkSession) -> None:
    of_a_cluster = spark.newSession()
    of_a_cluster.conf.set(PARTITIONS, 200)  # Spark's own number, which a session with a local master replaces
    use_every_core(of_a_cluster)
    assert of_a_cluster.range(1000).groupBy("id").count().rdd.getNumPartitions() == 2
