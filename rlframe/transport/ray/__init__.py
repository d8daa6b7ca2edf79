"""The transport within a Ray cluster: a mailbox actor for messages, and the object store for arrays.

The coordinator stays in the process that started the run and remains the only server: it fetches messages from the
mailbox, so that workers on any node of the cluster can reach it. Ray is imported when a server or a worker starts.
"""
