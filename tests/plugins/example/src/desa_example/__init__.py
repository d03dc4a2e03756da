"""Plug-ins for desa-ray: an operator of each kind, a fusion rule, a prompt."""
