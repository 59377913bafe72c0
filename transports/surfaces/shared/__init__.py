"""Parts that several surfaces share: connected apps and the activity log."""
