"""Prints how many orders each customer has made: Polars reads the table, without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import polars

described = subprocess.check_output(["eventproc", "table", "describe", "orders", "--output", "json"])
storage = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"]}
orders = polars.scan_iceberg(json.loads(described)["metadata"], storage_options=storage)
totals = orders.group_by("customer").agg(polars.sum("orders")).sort("customer").collect()
sys.stdout.write(totals.write_csv())
