"""Protects users from other people's files, and their secrets from files: limits, strict JSON, keys, redaction."""
