"""What `aiflow doctor` looks at: small checks, each of which finds one thing and says how to mend it."""
