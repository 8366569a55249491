"""The segment store's protocol of Pravega: frames, commands, and one connection's life."""
