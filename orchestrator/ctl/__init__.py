"""``llmgw ctl``: what an operator types. It talks to the admin API and decides nothing itself."""
