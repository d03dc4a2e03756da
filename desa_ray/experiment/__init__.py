"""What runs, finishes, logs and writes experiments: methods, text sources, cells, records."""
