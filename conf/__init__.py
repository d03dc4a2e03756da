"""Packaged Hydra configuration (`pkg://desa_ray.conf`)."""
