"""Content-addressed artifacts: results are found by their keys and never used unchecked."""
