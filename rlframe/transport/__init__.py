"""Transports: how the roles of parallel mode talk to their coordinator.

Every conversation is a request of a worker and the reply of the coordinator, both a typed message with or without
arrays. Workers call the coordinator, which never calls an address that somebody told it.
"""
