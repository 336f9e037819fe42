"""What both halves need beside the protocol and neither owns: small helpers of the standard library alone."""
