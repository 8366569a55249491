"""What every layer may import, the command line too: time and ids, tasks in the background, and counted nouns."""
