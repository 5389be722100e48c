# SPDX-License-Identifier: Apache-2.0
"""Reports for reviewers: terminal, Markdown for a pull request, one HTML file, JSON."""
