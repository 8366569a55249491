"""Payloads as JSON: which types can be read back, their conversion, and errors that name the field."""
