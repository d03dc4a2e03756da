"""The mathematics: operators, exact rankings, fusion, replay, metrics. Pure functions on arrays, no
I/O.
"""
