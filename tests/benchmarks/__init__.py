"""How fast this is, as ratios against named baselines in the same run: `make bench` (see
`__main__`).
"""
