"""What people give by mistake, and what they are told."""
