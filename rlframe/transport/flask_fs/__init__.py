"""The transport with HTTP for messages and files in a shared folder for arrays.

The server is Flask behind waitress; both are imported when a server starts, and workers need neither.
"""
