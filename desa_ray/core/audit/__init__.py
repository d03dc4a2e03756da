"""Which rule explains a fused answer, and what no rule allows; docs/audit.md says how."""
