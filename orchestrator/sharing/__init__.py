"""Who may start: the one gate on every route to a start. Pure."""
