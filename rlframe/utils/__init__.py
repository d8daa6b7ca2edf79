"""Small helpers that every layer may use and that know nothing of reinforcement learning."""
