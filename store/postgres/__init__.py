"""A store in a PostgreSQL database: the same transactions, on a server that several machines reach.

docs/design/postgresql.md says what must hold, and why. `server_database` opens a store; the rest are its parts.
"""
