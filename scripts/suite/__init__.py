# SPDX-License-Identifier: MIT
"""What scripts/run-tests.py consists of."""
