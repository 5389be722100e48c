# SPDX-License-Identifier: Apache-2.0
"""Reports about runs: one run, runs against each other, an MLPerf log. None imports torch."""
