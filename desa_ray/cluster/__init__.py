"""The only package that knows Ray: sessions, supervised pools, and the executor the pipeline runs on."""
