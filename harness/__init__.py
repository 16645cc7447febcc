"""What a test is, and the one way through it: scenario, runner, run folder, checkers, verdict."""
