"""The kinds of stages, one file each: name, version, parameters, schema, shards, run, size, memory,
metrics.
"""
