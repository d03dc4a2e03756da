"""The command line: one module a verb. The only package that may import everything."""
