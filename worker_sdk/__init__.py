"""What a worker imports to take permits."""
