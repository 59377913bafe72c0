"""Transfer of content between a page and files: a ladder of ways out of the page, uploads into it."""
