"""The cluster on which a schedule is played: its state, and the steps that change it."""
