"""Pure values and rules of streams: no await, no I/O, no clock. Import the modules, not this package."""
