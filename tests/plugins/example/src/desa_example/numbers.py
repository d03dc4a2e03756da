"""What the operators share; a change here changes their keys."""

GAMMA = 1.0
