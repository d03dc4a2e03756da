"""The only package that knows Ray: sessions, actors as a transport, placement, jobs and metrics."""
