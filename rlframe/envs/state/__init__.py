"""The state of an env as a graph of plain values; objects are numbered, so shared references stay shared.

Writing never guesses: an unsupported object is refused with its path and type. Reading never imports a module and calls
nothing that the state names.
"""
