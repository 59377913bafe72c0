"""Speed and memory, each against a named baseline measured in the same run: ``python -m tests.benchmarks``.

Nothing here asserts a time. A figure that falls short is printed as such, with the reason where one was measured.
"""
