"""Users of the endpoints: their grants, and the hashes of their passwords and tokens."""
