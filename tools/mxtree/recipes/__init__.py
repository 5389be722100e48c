# SPDX-License-Identifier: Apache-2.0
"""`mxtree recipe`: what recipes there are, what they say, and whether they can run. No torch."""
