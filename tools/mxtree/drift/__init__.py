# SPDX-License-Identifier: Apache-2.0
"""What upstream did since to the symbols that the patches change: what will hurt next."""
