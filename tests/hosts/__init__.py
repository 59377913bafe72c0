"""Hosts: real programs with artifact stores of their own, in environments of their own."""
