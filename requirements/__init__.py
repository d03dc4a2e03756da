"""The locks, packaged so that `desa doctor` can compare an installation with them."""
