"""The section ``parallel`` of configs of parallel mode: its options, and the rules that only such configs have.

``rlframe.config`` imports this room when a config has the section, so serial configs never pay for it.
"""
