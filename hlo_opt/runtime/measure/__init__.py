"""How long a run takes, and where the time goes."""
