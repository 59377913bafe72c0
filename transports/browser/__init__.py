"""A browser and its pages: the process, the scripts in a page, the transfer of bytes, the side effects of an app."""
