# SPDX-License-Identifier: Apache-2.0
"""`mxtree run` and `mxtree container`: the tree's overlay plans, this machine is checked here."""
