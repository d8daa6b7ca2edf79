"""Typed messages between the roles of parallel mode, and how they travel.

They go through one process, or over HTTP and a shared folder; through Ray by ``backend/ray``. A message arrives once
or its sender learns that it did not; what it means is up to the coordinator and its workers.
"""
