"""What ``rlframe new`` writes, as files that run: their names are replaced by those that the user gives."""

from __future__ import annotations
