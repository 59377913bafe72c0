"""The default store: a folder of files, safe against crashes, symlinks and concurrent writers."""
