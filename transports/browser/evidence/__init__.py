"""Evidence of a call in a page: Playwright trace, video, HAR, console, screenshot; recorded, then redacted."""
