"""The command line: for people at a shell; one file per noun, thin."""
