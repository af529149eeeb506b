# SPDX-License-Identifier: MIT
"""What Python blocks of the documents find in place of modules that a test machine lacks."""
