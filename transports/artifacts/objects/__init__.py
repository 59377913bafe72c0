"""The store in a bucket of Amazon S3 (or a compatible server), Google Cloud Storage or Azure; extra ``cloud``."""
