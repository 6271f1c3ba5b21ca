"""What a module holds in memory while it runs: how much at the most, when, who, and what would lower it.
`hlo-opt memory`."""
