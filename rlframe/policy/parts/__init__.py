"""Parts that policies share: action bounds, masks and noise, recurrent states, optimizers, normalisation, schedules.

A part knows one thing, and no policy. What only one algorithm needs stays in the file of that algorithm.
"""
