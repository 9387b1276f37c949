"""Decisions about tiles: what the machine offers, what each choice costs, and which one is taken."""
