"""What the command line does for users who write configs and components: look things up, check them, begin files.

Each verb has one or two modules here, which return plain data; the modules of ``entry.verbs`` print them.
"""
