"""Run folders -> progress, tables and figures."""
