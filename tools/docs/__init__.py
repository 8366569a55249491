"""The documents that are made from the code: `python -m tools.docs` writes them, with `--check` it compares them."""
