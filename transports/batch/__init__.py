"""Many calls: jobs that run over a pool of apps and browsers, and the ledger that knows what became of each."""
