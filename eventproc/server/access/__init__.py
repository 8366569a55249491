"""Who may do what through the endpoints: users, passwords, tokens, permissions and certificates."""
