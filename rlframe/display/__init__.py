"""What a terminal or a notebook shows.

``live`` shows a run in a line that is redrawn, ``workers`` those of parallel mode and several seeds, ``text`` has lines,
tables and commands.
"""
