"""Collections: where they come from, how they are read, and what they must satisfy."""

from desa_ray.data.load import fingerprint, generations_folder, load_collection

__all__ = ["fingerprint", "generations_folder", "load_collection"]
