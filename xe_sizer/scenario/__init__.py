"""What a user asks: the schema of scenario files, how they are read and merged, where each value came from."""
