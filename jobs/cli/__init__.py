"""What the verbs share: Hydra, the command line, the terminal."""
