"""Lies here so that pytest puts this folder on the import path: every test can ``import fakes``."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
