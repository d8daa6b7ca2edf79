"""Work done elsewhere: workers in threads, child processes or Ray actors, which are called, watched and replaced.

Nothing here knows reinforcement learning. ``Worker`` is what runs in a place; a ``Place`` starts workers and carries
calls to them; a ``Supervisor`` calls them, never waits without a limit, and replaces those that are lost.
"""
