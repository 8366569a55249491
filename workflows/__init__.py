"""What happens to a stream or scope: one file per workflow. The host runs them from internal streams."""
