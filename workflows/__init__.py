"""What happens to a stream: one file per workflow, run from the internal request stream."""
