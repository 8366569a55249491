"""Backups of a directory: made while it is in use, verified, and restored into a new directory.

`make` makes one, `restore` makes a directory of one, `contents` describes and checks the files of both. Few programs
need them, so this package imports none of its modules. Reasons: docs/design/backup.md.
"""
