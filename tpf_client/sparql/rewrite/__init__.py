"""Algebra to algebra: whatever rewrites a query does it here, for all who evaluate one."""
