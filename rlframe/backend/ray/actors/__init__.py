"""Ray actors: starts, calls, watches and replaces them, and manages their Ray session."""
