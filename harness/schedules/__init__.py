"""What a run is made of before anything runs: data only. `harness.play` carries it out."""
