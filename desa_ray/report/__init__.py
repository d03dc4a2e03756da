"""Tables, figures and pages from query records alone."""
