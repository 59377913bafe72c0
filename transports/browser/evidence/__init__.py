"""Evidence of a call in a page: Playwright's trace, a video, a HAR, the console, a picture; recorded, then redacted."""
