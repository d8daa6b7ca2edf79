"""Tools for users who write configs and components: to look things up, check them and begin files.

Each verb has one or two modules here, which return plain data; the modules of ``entry.verbs`` print them.
"""
