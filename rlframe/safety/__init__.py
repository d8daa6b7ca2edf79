"""Protects users from files of others and their secrets from files: limits, strict JSON, keys, redaction."""
