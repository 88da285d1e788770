"""Calls that the name map alone does not pair: by place, and at the ends of fused layers."""
