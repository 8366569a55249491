"""What commands print: tables and JSON, events, and what only a terminal shows."""
