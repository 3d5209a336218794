"""Where a replica fits, and why it does not fit elsewhere (R30-R46). Pure."""
