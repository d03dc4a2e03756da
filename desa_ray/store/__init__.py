"""Content-addressed artifacts: what was computed once is found again by its key, and never trusted
unchecked.
"""
