"""Backups of a directory: made while it is in use, verified, and restored into a new directory. Copies of any store.

`make` makes a backup, `restore` makes a directory of one, `contents` describes and checks the files of both. `copy`
copies a store between engines, by the batches of `rows`. Few programs need them, so this package imports none of its
modules. Reasons: docs/design/backup.md and docs/design/copy.md.
"""
