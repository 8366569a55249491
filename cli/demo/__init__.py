"""`eventproc demo`: the command, the producer process, the run, and the ledger that proves that no row was lost."""
