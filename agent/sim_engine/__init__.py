"""The simulated engine: a real HTTP server that models an engine's timing and speaks Greek letters."""
