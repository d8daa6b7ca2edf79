"""Coordinator: brings the collectors and learners of parallel mode together, and keeps their tasks, data and weights."""
