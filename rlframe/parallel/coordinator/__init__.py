"""The coordinator and its commanders: who collects what, who learns from it, and who plays whom.

A commander decides, the coordinator answers the requests of workers and keeps their data and weights. Nothing here
knows how messages travel, or how workers do what they are told.
"""
