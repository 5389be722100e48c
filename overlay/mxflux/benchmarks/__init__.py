# SPDX-License-Identifier: Apache-2.0
"""Measurements that run where a tree is installed: a step, its kernels and its peers."""
