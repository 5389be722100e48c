# SPDX-License-Identifier: Apache-2.0
"""Trees: what `mxtree build` makes, proves and reports on."""
