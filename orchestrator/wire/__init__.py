"""What two processes must agree on: message types, key names, and the few rules both sides compute.

A leaf package: it imports nothing of ours but ``ext`` and does no I/O.
"""
