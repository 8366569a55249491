"""What eventproc costs, each measurement beside its floor in the same run: `python -m benchmarks [--quick]`."""
