"""What several surfaces need."""
