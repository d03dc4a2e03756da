"""The part of fsspec used here, which has no types of its own."""
