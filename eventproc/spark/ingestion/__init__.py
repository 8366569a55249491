"""Ingestion on Spark: the tasks of supervisors as Spark jobs, and the tables that they publish.

See docs/design/spark-ingestion.md.
"""
