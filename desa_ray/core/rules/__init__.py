"""Fusion rules other than reciprocal ranks: normalisers, combinations, exact orders and how deep
lists must be read for them (method.md section 6.12).
"""
