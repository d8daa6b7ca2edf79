"""Collection and evaluation in Ray actors."""
