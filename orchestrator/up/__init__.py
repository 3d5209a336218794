"""``llmgw up``: everything on one machine, with a demo model, for a first answer in two commands."""
