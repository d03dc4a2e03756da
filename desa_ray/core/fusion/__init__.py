"""Fusion of ranked lists: the exact fused order, and the certification depth that proves
its head.
"""
