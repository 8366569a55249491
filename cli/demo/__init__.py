"""`eventproc demo`: the command, its input file, its run, and the ledger that proves that no row was lost."""
