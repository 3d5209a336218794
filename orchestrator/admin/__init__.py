"""The admin API on loopback: what ctl and the dashboard read and change. It has no login (R165)."""
