"""Templates of ``rlframe new``, as files that run; the user's names replace theirs."""

from __future__ import annotations
