# SPDX-License-Identifier: Apache-2.0
"""From pictures and captions to what Flux trains on, and back to pictures."""
