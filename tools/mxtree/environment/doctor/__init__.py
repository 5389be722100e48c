# SPDX-License-Identifier: Apache-2.0
"""`mxtree doctor`: is there what the tool and the training need, and if not, what would help."""
