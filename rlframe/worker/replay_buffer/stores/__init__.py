"""How a replay buffer keeps its items: columns in rings, frames of stacked images once, objects, files."""
