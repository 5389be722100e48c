# SPDX-License-Identifier: Apache-2.0
"""What benchmarks/chains.py is made of: the chains, their checks, their times, the report."""
