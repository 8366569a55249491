"""What the repository needs around the code: set-up of the environment, generated documents. Not distributed."""
