"""Which replicas exist, where each shard runs, what must stop. Pure: events in, actions out."""
