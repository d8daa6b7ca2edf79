"""Checks of envs: what rlframe requires of them, and what it warns of."""
