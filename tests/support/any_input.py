"""What the property tests have in common."""

from hypothesis import HealthCheck

SUPPRESSED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
"""Every example makes its own files in the fixture's folder; and a busy machine is no reason to fail."""
