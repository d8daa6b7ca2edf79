"""Atari games as papers set them, in this process, in ALE's own threads or in EnvPool.

One set of options describes a game for all three. Training may end an episode with every life and clip rewards, while
the logs count unclipped returns of whole games, and evaluation plays whole games.
"""
