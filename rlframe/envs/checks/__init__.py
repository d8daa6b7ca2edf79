"""Checks of envs: requirements that raise errors, and bad habits that cause warnings."""
